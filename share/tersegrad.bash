# bash completion for tersegrad. Source it, or put it into bash-completion's completions directory as `tersegrad`.

_tersegrad_files() {
    # Files with one of the given endings, and directories.
    local ending
    for ending in "$@"; do
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -X "!*$ending" -- "$current")
    done
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -S / -- "$current")
}

_tersegrad_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}

_tersegrad_codecs() {
    _tersegrad_words "$(tersegrad codecs --names 2>/dev/null)"
}

_tersegrad() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local commands="codecs encode decode inspect bench plan train report help"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _tersegrad_words "$commands --help --version"
        return
    fi

    # What follows an option that takes a value.
    case $command$previous in
    train--nonfinite) _tersegrad_words "stop skip drop"; return ;;
    encode-o) _tersegrad_files .tg; return ;;
    decode-o) _tersegrad_files .npy; return ;;
    report-o) _tersegrad_files .html; return ;;
    plan--model) _tersegrad_words "resnet50 resnet152 vgg16 vgg19 alexnet lstm gpt2"; return ;;
    plan--device) _tersegrad_words "cpu cuda"; return ;;
    plan--feedback | train--feedback) _tersegrad_words "none ef ecq:alpha=0.2,beta=0.9 dgc:momentum=0.9"; return ;;
    esac
    case $previous in
    --nonfinite) _tersegrad_words "reject zero trust"; return ;;
    --data)
        _tersegrad_words "syn-256 syn-512 syn-1024 syn-20k synthetic:"
        _tersegrad_files ""
        return
        ;;
    --model) _tersegrad_words "linear linear:bias logistic logistic:bias softmax mlp:"; return ;;
    --schedule) _tersegrad_words "constant linear cosine step"; return ;;
    --algorithm) _tersegrad_words "sgd qsvrg"; return ;;
    --reduce) _tersegrad_words "gather shard auto"; return ;;
    --group) _tersegrad_words "auto 1 2 4 8"; return ;;
    --bypass) _tersegrad_words "off auto replay:"; return ;;
    --log) _tersegrad_files .jsonl; return ;;
    --report) _tersegrad_files .html; return ;;
    --checkpoint | --resume) _tersegrad_files ""; return ;;
    --dtype) _tersegrad_words "f4 f2"; return ;;
    --codec) _tersegrad_codecs; return ;;
    --device) _tersegrad_words "cpu $(tersegrad bench --devices 2>/dev/null)"; return ;;
    --layout | --probe) _tersegrad_files .json; return ;;
    --distribution)
        _tersegrad_words "gaussian laplace student uniform mixture equal signs sorted layer ambush"
        _tersegrad_files .npy
        return
        ;;
    --seed | --step | --tensor | --rank | --density | --seconds | -n) return ;;
    --workers | --batch | --lr | --momentum | --weight-decay | --steps | --epochs) return ;;
    --world | --per-node | --rate | --latency | --forward | --backward | --kappa) return ;;
    --rack | --oversubscription | --jitter | --stragglers | --slowdown) return ;;
    --min-size | --warmup | --density-schedule | --every) return ;;
    esac

    if [[ $current == -* ]]; then
        case $command in
        codecs) _tersegrad_words "--names --json --help" ;;
        encode) _tersegrad_words "--seed --step --tensor --rank --nonfinite --no-checksum -o -f --force -q
            --quiet --json --help" ;;
        decode) _tersegrad_words "--dtype -o -f --force -q --quiet --json --help" ;;
        inspect) _tersegrad_words "--density --layout --wide --json --help" ;;
        bench)
            _tersegrad_words "-n --distribution --codec --device --devices --feedback --nonfinite --seconds
                --decades --tensors --compare --wide --json --help"
            ;;
        plan)
            _tersegrad_words "--model --layout --backward --forward --probe --seconds --insist --world --per-node --flat --rate --latency --codec
                --feedback --min-size --device --kappa --report --simulate --rack --oversubscription --jitter
                --stragglers --slowdown --steps --seed --json --help"
            ;;
        report) _tersegrad_words "-o -f --force -q --quiet --json --help" ;;
        train)
            _tersegrad_words "--data --model --workers --batch --lr --momentum --weight-decay --schedule --steps
                --epochs --seed --codec --feedback --insist --algorithm --reduce --link --group --min-size --warmup --bypass
                --density-schedule --nonfinite --log --report --checkpoint --every --resume --timeout --device --wide
                --json --help"
            ;;
        esac
        return
    fi

    # Which argument this is: options and their values do not count.
    local place=1 word i
    for ((i = 2; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
        --seed | --step | --tensor | --rank | --nonfinite | --dtype | --density | --layout | -o) ((i++)) ;;
        -?*) ;;
        *) ((place++)) ;;
        esac
    done
    case $command-$place in
    encode-1) _tersegrad_codecs ;;
    encode-*) _tersegrad_files .npy ;;
    decode-*) _tersegrad_files .tg ;;
    report-*) _tersegrad_files .jsonl ;;
    inspect-1) _tersegrad_files .npy .tg ;;
    help-1) _tersegrad_words "$commands" ;;
    esac
}

complete -o filenames -F _tersegrad tersegrad
