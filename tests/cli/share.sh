# The completion offers what the command has; the man page names every command and option.
. "$TOOLS/lib.sh"
command -v bash >/dev/null || { echo "there is no bash here"; exit 77; }
cat >complete.bash <<'END'
. "$SHARE/tersegrad.bash"
offer() {
    COMP_WORDS=(tersegrad "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _tersegrad
    echo "$* -> ${COMPREPLY[*]}"
}
touch a.npy b.tg c.layout.json d.jsonl
offer ''
offer e
offer encode --s
offer encode --nonfinite ''
offer encode q
offer encode qsgd ''
offer encode qsgd a.npy ''
offer encode qsgd a.npy -o ''
offer decode b.tg -o ''
offer decode ''
offer decode --dtype ''
offer inspect ''
offer inspect --layout ''
offer bench --distribution g
offer bench --codec top
offer plan --model ''
offer plan --device ''
offer plan --w
offer train --nonfinite ''
offer train --feedback e
offer train --report ''
offer train --w
offer report ''
offer help d
END
bash complete.bash
echo "# every option of every help is offered, and in the man page"
for command in $(tersegrad --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | grep -vx help); do
    grep -q "commands=.*[\" ]${command}[\" ]" "$SHARE/tersegrad.bash" || echo "completion lacks $command"
    grep -q "^ *'$command:" "$SHARE/_tersegrad" || echo "zsh completion lacks $command"
    grep -q "^\.SS tersegrad $command " "$SHARE/tersegrad.1" || echo "man page lacks $command"
    for option in $(tersegrad $command --help | sed -n 's/^  \(-[a-z]\), \(--[a-z-]*\).*/\1 \2/p; t; s/^  \(--*[a-z-]*\).*/\1/p'); do
        grep -q -- "$option" "$SHARE/tersegrad.bash" || echo "completion lacks $command $option"
        sed -n "/^    $command)/,/;;/p; /output=/,/)$/p; /common=/p" "$SHARE/_tersegrad" | grep -q -- "[^-]${option}[^a-z-]" ||
            echo "zsh completion lacks $command $option"
        escaped=$(echo "$option" | sed 's/-/\\\\-/g')
        grep -q -- "$escaped" "$SHARE/tersegrad.1" || echo "man page lacks $command $option"
    done
done
