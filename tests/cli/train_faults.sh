# What can go wrong with `tersegrad train`, and that a run which is stopped goes on as if it had not been.
. "$TOOLS/lib.sh"
set -- --data synthetic:rows=2000,test=200,features=20,classes=4 --model mlp:16 --workers 3 --momentum 0.9 \
    --codec qsgd --codec topk:density=0.05 --every 30
hashes() {
    json '[r["weights_hash"] for r in j["runs"]]'
}
whole=$(tersegrad train "$@" --steps 200 --json 2>/dev/null | hashes)
# same NAME TEXT: is it what the undisturbed run had?
same() {
    [ "$2" = "$whole" ] && echo "$1: the same weights" || echo "$1: other weights $2"
}
echo "# a run in two and in three parts"
tersegrad train "$@" --steps 70 --checkpoint a.ckpt >/dev/null 2>&1
same two "$(tersegrad train "$@" --steps 200 --resume a.ckpt --json 2>/dev/null | hashes)"
tersegrad train "$@" --steps 131 --resume a.ckpt --checkpoint b.ckpt >/dev/null 2>&1
same three "$(tersegrad train "$@" --steps 200 --resume b.ckpt --json 2>/dev/null | hashes)"
same scalar "$(tersegrad train "$@" --steps 200 --resume b.ckpt --device cpu/scalar --json 2>/dev/null | hashes)"
tersegrad train "$@" --steps 200 --algorithm qsvrg --json 2>/dev/null | hashes >qsvrg.txt
tersegrad train "$@" --steps 50 --algorithm qsvrg --checkpoint q.ckpt >/dev/null 2>&1
tersegrad train "$@" --steps 200 --algorithm qsvrg --resume q.ckpt --json 2>/dev/null | hashes | cmp - qsvrg.txt && echo "qsvrg: the same weights"
echo "# what is not typed is taken from the checkpoint; its files only by --resume alone"
mkdir alone
(
    cd alone || exit 1
    tersegrad train "$@" --steps 70 --checkpoint=own.ckpt --log own.jsonl >/dev/null 2>&1
    cp own.ckpt old.ckpt
    same steps "$(tersegrad train --resume old.ckpt --steps 200 --json 2>/dev/null | hashes)"
    tersegrad train --resume old.ckpt --steps=90 --checkpoint next.ckpt >/dev/null 2>&1
    wc -l <own.jsonl
    same again "$(tersegrad train --resume=next.ckpt --steps 200 --json 2>/dev/null | hashes)"
    tersegrad train --resume next.ckpt --epochs 5 --json 2>/dev/null | json '[(r["world"], r["steps"]) for r in j["runs"]]'
    tersegrad train --resume old.ckpt 2>/dev/null | grep -o '3 workers.*70 steps'
    tersegrad train --resume old.ckpt --codec none 2>&1
    tersegrad train --resume missing.ckpt 2>&1
    tersegrad train --resume old.ckpt --steps 2>&1
    ls
)
rm -r alone
echo "# nothing is left beside the checkpoints, and the log of a resumed run goes on"
ls
tersegrad train "$@" --steps 75 --resume a.ckpt --log log.jsonl >/dev/null 2>&1
logged() { python3 -c 'import json; print([step["step"] for step in map(json.loads, open("log.jsonl")) if "step" in step])'; }
logged
printf '{"run": 0, "codec": "to' >>log.jsonl # killed while it wrote, and a.ckpt is older than what it had logged
tersegrad train "$@" --steps 73 --resume a.ckpt --log log.jsonl --checkpoint c.ckpt >/dev/null 2>&1
logged
tersegrad train "$@" --steps 75 --resume c.ckpt --log log.jsonl >/dev/null 2>&1 # the second run's steps up to 73 stay
tersegrad train "$@" --steps 76 --resume c.ckpt --log log.jsonl >/dev/null 2>&1
logged
echo "# more workers than before, and fewer"
tersegrad train "$@" --steps 80 --resume a.ckpt --workers 5 --json 2>/dev/null | json '[(r["world"], r["steps"]) for r in j["runs"]]'
tersegrad train "$@" --steps 80 --resume a.ckpt --workers 1 --json 2>/dev/null | json '[(r["world"], r["steps"]) for r in j["runs"]]'
echo "# checkpoints that do not fit"
# refused OPTION...: the options as above, resumed from a.ckpt with others
refused() {
    tersegrad train --data synthetic:rows=2000,test=200,features=20,classes=4 --model mlp:16 --workers 3 --momentum 0.9 --codec qsgd \
        --codec topk:density=0.05 --resume a.ckpt --steps 90 "$@" 2>&1
    echo "-> $?"
}
refused --steps 60
refused --seed 2
refused --batch 64
refused --model mlp:17
refused --data synthetic:rows=2001,test=200,features=20,classes=4
refused --algorithm qsvrg
refused --momentum 0
refused --codec none
refused --feedback ef
refused --resume missing.ckpt
refused --resume "$TOOLS/lib.sh" | sed "s,'/.*',LIB,"
head -c 5000 a.ckpt >cut.ckpt
refused --resume cut.ckpt
python3 -c 'data = bytearray(open("a.ckpt", "rb").read()); data[len(data) // 2] ^= 1; open("flip.ckpt", "wb").write(data)'
refused --resume flip.ckpt
: >empty.ckpt
refused --resume empty.ckpt
echo "# places that cannot be written"
mkdir folder
for place in /dev/full missing/a.ckpt folder; do
    echo "$place"
    { tersegrad train --data syn-256 --steps 20 --every 10 --codec none --checkpoint $place >/dev/null; } 2>&1
    echo "-> $?"
done
try tersegrad train --data syn-256 --steps 2 --codec none --log missing/log.jsonl
tersegrad train --data syn-256 --steps 2 --codec none --log /dev/full 2>&1 >/dev/null | tail -n 1
tersegrad train --data syn-256 --steps 2 --codec none --report missing/report.html 2>&1 >/dev/null | tail -n 1
tersegrad train --data syn-256 --steps 2 --codec none --report /dev/full 2>&1 >/dev/null | tail -n 1
try tersegrad train --data syn-256 --steps 2 --codec none --report folder
echo "# what fills up on the way does not take the results with it"
tersegrad train --data syn-256 --steps 2 --codec none --json --report /dev/full 2>/dev/null | json 'j["runs"][0]["steps"]'
tersegrad train --data syn-256 --steps 2 --codec none --json --log /dev/full 2>/dev/null | json 'j["runs"][0]["steps"]'
tersegrad train --data syn-256 --steps 2 --codec none --json 2>/dev/null >/dev/full
echo "-> $?"
echo "# a gradient that is not finite: one row of forty overflows"
python3 -c 'for i in range(40): print("%g 1:%g 2:%g" % (3e38 if i == 7 else i % 5, 100 if i == 7 else i % 3, i % 7 / 7))' >overflow.txt
set -- --data overflow.txt --model linear --workers 2 --batch 2 --steps 40 --lr 0.01
{ tersegrad train "$@" --codec topk:density=0.5 >/dev/null; } 2>&1
echo "-> $?"
for policy in skip drop; do
    tersegrad train "$@" --codec topk:density=0.5 --codec none --nonfinite $policy --json 2>/dev/null |
        json '[(r["skipped"], r["steps"], r["final_loss"] is not None) for r in j["runs"]]'
done
try tersegrad train "$@" --codec none --algorithm qsvrg --nonfinite skip
echo "# feedback that is refused as unstable is refused before the first run"
try tersegrad train --data syn-256 --steps 2 --codec none --codec qsgd:levels=4,norm=l2,bucket=0 --feedback ef
echo "# a run that diverges says so"
{ tersegrad train --data syn-256 --lr 1e12 --steps 4 --codec none >/dev/null; } 2>&1
echo "# data that changed under their name"
printf '%s 1:1 2:3\n' 1 -1 1 -1 >changing.txt
tersegrad train --data changing.txt --workers 2 --steps 2 --codec none --checkpoint data.ckpt >/dev/null 2>&1
sed -i '1s/3/4/' changing.txt
try tersegrad train --data changing.txt --workers 2 --steps 4 --codec none --resume data.ckpt
echo '1 1:2' >>changing.txt
try tersegrad train --data changing.txt --workers 2 --steps 4 --codec none --resume data.ckpt
echo "# a long setting"
part=$(printf '%0200d' 0)
long=$part/$part/$part
for end in 1 2; do
    mkdir -p "$long/$end"
    printf '%s 1:1 2:3\n' 1 -1 1 -1 >"$long/$end/data.txt"
done
tersegrad train --data "$long/1/data.txt" --workers 2 --steps 2 --codec none --checkpoint long.ckpt >/dev/null 2>&1
tersegrad train --data "$long/2/data.txt" --workers 2 --steps 4 --codec none --resume long.ckpt 2>&1 | sed 's/00*/0/g'
echo "# a checkpoint of another --min-size"
tersegrad train --data syn-256 --steps 2 --codec none --checkpoint small.ckpt >/dev/null 2>&1
try tersegrad train --data syn-256 --steps 4 --codec none --min-size 9 --resume small.ckpt
