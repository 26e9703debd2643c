# `tersegrad train --bypass`: decided by times, replayed, over checkpoints; and what is refused.
. "$TOOLS/lib.sh"
data="--data synthetic:rows=2000,test=200,features=20,classes=4 --model mlp:16 --workers 3"
# run NAME OPTION...: its JSON to NAME.json
run() {
    name=$1
    shift
    tersegrad train $data "$@" --json >"$name.json" 2>err.txt || cat err.txt
}
changes() {
    json '",".join(map(str, j["runs"][0].get("bypass_changes", [])))' <"$1.json"
}
# same NAME NAME: whether two runs ended with the same weights, and with the same changes
same() {
    python3 -c 'import json, sys
one, two = (json.load(open(name + ".json"))["runs"] for name in sys.argv[1:])
for key in ("weights_hash", "bypass_changes"):
    print(key, "the same" if [r.get(key) for r in one] == [r.get(key) for r in two] else "other")' "$1" "$2"
}
coded="--codec topk:density=0.05"
run off $coded --steps 70 --bypass off
run plain $coded --steps 70
echo "# off is what it is without the option"
same off plain
echo "# decided by times: first tried after a step that does not count, and 16 that do; then the same from its log"
run auto $coded --codec qsgd:levels=7 --steps 70 --bypass auto
json '[r["bypass_changes"][0] for r in j["runs"]]' <auto.json
json '[r["bypass_changes"] == sorted(set(r["bypass_changes"])) and r["bypass_changes"][-1] < 70 for r in j["runs"]]' <auto.json
run auto $coded --steps 70 --bypass auto
run replay $coded --steps 70 --bypass "replay:$(changes auto)"
same auto replay
run auto $coded --steps 10 --bypass auto
changes auto
echo "# for people"
tersegrad train $data $coded --steps 30 --bypass replay:7,11,25 --log steps.jsonl 2>/dev/null | tail -n 1
echo "# in the log, where steps count from 1, and only with bypass"
steps() {
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open("steps.jsonl")][1:]
print([line["step"] for line in lines if line["bypassed"]] if "bypassed" in lines[0] else None)'
}
steps
tersegrad train $data $coded --steps 20 --bypass auto --log steps.jsonl >/dev/null 2>&1
steps
tersegrad train $data $coded --steps 20 --log steps.jsonl >/dev/null 2>&1
steps
echo "# a change that comes after the last step, as that at 18 would, is not one"
run auto $coded --steps 18 --bypass auto
changes auto
echo "# over a checkpoint: decided further, and replayed from the start and from there"
tersegrad train $data $coded --steps 40 --bypass auto --checkpoint a.ckpt >/dev/null 2>&1
run further --resume a.ckpt --steps 70
further=$(changes further)
echo "${further%%,*}"
echo "# with fewer workers decided anew: the log of bypass begins there, and the steps go on"
rm steps.jsonl
tersegrad train $data --resume a.ckpt --steps 60 --workers 2 --log steps.jsonl >/dev/null 2>&1
steps
run replay $coded --steps 70 --bypass "replay:$further"
same further replay
run replay --resume a.ckpt --steps 70 --bypass "replay:$further"
same further replay
echo "# replayed over a checkpoint, further, and decided from there"
run whole $coded --steps 70 --bypass replay:7,11,30,50
tersegrad train $data $coded --steps 40 --bypass replay:7,11,30 --checkpoint r.ckpt >/dev/null 2>&1
run parts --resume r.ckpt --steps 70 --bypass replay:7,11,30,50
same whole parts
run decided --resume r.ckpt --steps 70 --bypass auto
changes decided | cut -d , -f 1-3
run replay $coded --steps 70 --bypass "replay:$(changes decided)"
same decided replay
echo "# many changes"
run many $coded --steps 310 --bypass "replay:$(seq -s , 1 300)"
json 'j["runs"][0]["bypass_changes"] == list(range(1, 301))' <many.json
echo "# a log that does not fit"
# refused OPTION...: with the data as above
refused() {
    tersegrad train $data --json "$@" 2>&1
    echo "-> $?"
}
refused --resume r.ckpt --steps 70 --bypass replay:5
refused --resume r.ckpt --steps 70 --bypass replay:7,11
refused --resume r.ckpt --steps 70 --bypass replay:7,11,30,39
refused --resume r.ckpt --steps 70 --bypass replay:7,11,30 --workers 2
refused $coded --steps 10 --bypass replay:500
refused $coded --steps 10 --bypass replay:3,10
refused $coded --bypass replay:500
refused $coded --epochs 1 --bypass replay:500
refused --resume r.ckpt --steps 45 --bypass replay:7,11,30,50
echo "# what is refused writes nothing: files that are there stay as they are, no others appear, and no run makes a step"
# unchanged OPTION...: over files that are there, and where there are none
unchanged() {
    mkdir full empty
    for file in log page ckpt; do echo "my $file" >full/$file; done
    for folder in full empty; do
        refused "$@" --log $folder/log --report $folder/page --checkpoint $folder/ckpt
    done
    cat full/*
    ls empty
    rm -r full empty
}
unchanged $coded --epochs 1 --bypass replay:500
unchanged --resume r.ckpt --steps 70 --bypass replay:5
unchanged --resume r.ckpt --steps 70 --bypass replay:7,11,30 --workers 2
echo "# nor where the log fits the first run, which diverged before the log of the second begins"
two="--data syn-256 --workers 2 --lr 0.4 --codec terngrad --codec none --feedback none"
tersegrad train $two --steps 320 --bypass replay:300 --checkpoint two.ckpt --every 10 2>&1 >/dev/null | cut -d ' ' -f 1,2
data=$two
unchanged --resume two.ckpt --steps 340 --bypass replay:330
echo "# other bad values"
for how in '' on auto: replay replay: 'replay:,' 'replay:5,' replay:,5 replay:5,5 replay:6,5 replay:-1 replay:x replay:5,x replay:99999999999999999999; do
    try tersegrad train --bypass "$how"
done
tersegrad train --steps 9000 --bypass "replay:$(seq -s , 1 4097)"
echo "-> $?"
echo "# what it cannot be combined with"
try tersegrad train --group 2 --bypass auto
try tersegrad train --group 2 --bypass replay:5
try tersegrad train --codec topk --feedback dgc --bypass auto
try tersegrad train --codec none --codec topk --feedback none --feedback dgc:momentum=0.5 --bypass replay:5
run group $coded --steps 2 --group 1 --bypass auto
run group $coded --steps 2 --group 3 --bypass off
