#!/usr/bin/env bash
# Golden frames: every line of list.txt is encoded and compared with the frame that is checked in, byte for byte, and that frame is
# decoded and compared with the digest that is checked in.
#
#   tests/golden/run.sh COMMAND...            e.g. build/tersegrad, or qemu-s390x build/s390x/tersegrad
#   tests/golden/run.sh --update COMMAND...   writes frames and digests anew; say why in the commit
set -u
here=$(cd "$(dirname "$0")" && pwd)
update=0
[ "${1:-}" = --update ] && update=1 && shift
[ $# -gt 0 ] || { echo "usage: $0 [--update] COMMAND..." >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

report() { # held name what
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $2: $3"
    fi
}

digest() { sha256sum <"$1" | cut -d' ' -f1; }

[ "$update" -eq 1 ] && : >"$here/decoded.sha256"
while read -r name input spec; do
    case $name in '' | '#'*) continue ;; esac
    golden=$here/frames/$name.tg
    case $input in
    large | rare)
        [ -e "$work/$input.npy" ] || "$@" decode "$here/inputs/$input.tg" "$work/$input.npy" >/dev/null || exit 1
        source=$work/$input.npy
        ;;
    *) source=$here/inputs/$input.npy ;;
    esac
    "$@" encode --force "$spec" "$source" "$work/frame.tg" --seed 7 --step 11 --tensor 13 --rank 17 >/dev/null
    report $? "$name" "encode failed"
    [ "$update" -eq 1 ] && cp "$work/frame.tg" "$golden"
    cmp -s "$work/frame.tg" "$golden"
    report $? "$name" "the frame differs from the golden one"
    "$@" decode --force "$golden" "$work/out.npy" >/dev/null
    report $? "$name" "decode failed"
    [ "$update" -eq 1 ] && echo "$name $(digest "$work/out.npy")" >>"$here/decoded.sha256"
    [ "$name $(digest "$work/out.npy")" = "$(grep "^$name " "$here/decoded.sha256")" ]
    report $? "$name" "the decoded values differ"
done <"$here/list.txt"

# Every codec of the table must have a frame here.
for codec in $("$@" codecs --names); do
    grep -q " $codec\(:\|\$\)" "$here/list.txt"
    report $? "$codec" "no golden frame; add a line to list.txt"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
