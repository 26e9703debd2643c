# `tersegrad train`: what it prints, the rules that its figures keep, and that the same run gives the same weights.
. "$TOOLS/lib.sh"
small="--data synthetic:rows=2000,test=200,features=20,classes=4,spread=8 --model mlp:16 --steps 60 --workers 3"
train() {
    tersegrad train "$@" --json 2>err.txt >out.json
    echo "-> $?"
}
echo "# the JSON of the issue, with what was added behind"
train $small --codec none --codec qsgd:levels=7 --codec topk:density=0.05
json 'list(j)' <out.json
json 'list(j["runs"][0])' <out.json
json 'list(j["runs"][0]["stages"])' <out.json
json '[(r["codec"], r["feedback"], r["algorithm"], r["world"], r["transport"], r["steps"], r["skipped"]) for r in j["runs"]]' <out.json
json 'all(r["final_loss"] < 1 and 0.7 < r["accuracy"] <= 1 and r["distance_to_optimum"] is None for r in j["runs"])' <out.json
json 'all(min(r["stages"].values()) >= 0 for r in j["runs"])' <out.json
json 'len({r["weights_hash"] for r in j["runs"]}) == 3 and {len(r["weights_hash"]) for r in j["runs"]}' <out.json
echo "# bytes: 20*16 + 16 + 16*4 + 4 = 404 parameters, 4 tensors, 60 steps; a ring sends 2/3 of them twice, as 4 bytes each, to a byte for each tensor"
json '[0 <= 60 * 404 * 16 / 3 - r["dense_bytes"] < 60 * 4 for r in j["runs"]]' <out.json
json '[r["bytes_sent"] < j["runs"][0]["bytes_sent"] for r in j["runs"]]' <out.json
json '[r["frame_ratio"] < q["frame_ratio"] for r, q in zip(j["runs"], j["runs"][1:])]' <out.json
wc -l <err.txt
echo "# the same again; on the definition's kernels; with another seed"
cp out.json first.json
for options in "--device cpu" "--device cpu/scalar" "--seed 2"; do
    train $small --codec none --codec qsgd:levels=7 --codec topk:density=0.05 $options
    python3 -c 'import json
one, two = (json.load(open(name))["runs"] for name in ("first.json", "out.json"))
print([a["weights_hash"] == b["weights_hash"] for a, b in zip(one, two)])'
done
echo "# an optimum that is known"
train --data synthetic:features=30,rows=1000,test=100 --codec none --codec qsgd:levels=127 --steps 300
json '[(r["accuracy"], r["distance_to_optimum"] < 0.01) for r in j["runs"]]' <out.json
echo "# QSVRG"
train --data synthetic:features=30,rows=1000,test=100 --algorithm qsvrg --codec qsgd:levels=7 --steps 300
json '[(r["algorithm"], r["distance_to_optimum"] < 0.01) for r in j["runs"]]' <out.json
echo "# defaults of feedback, and pairs"
for list in "" "--feedback none" "--feedback ef --feedback dgc:momentum=0.5 --feedback none"; do
    train $small --steps 2 --codec topk --codec randk:density=0.1 --codec onebit $list
    json '[r["feedback"] for r in j["runs"]]' <out.json
done
echo "# every schedule, warm-up, small tensors, densities; each changes the result"
for options in "--schedule linear" "--schedule cosine" "--schedule step" "--momentum 0.9" "--weight-decay 0.01" "--warmup 10" \
    "--min-size 100" "--density-schedule 0:0.5,30:0.1" "--density-schedule dgc:10" "--batch 8" "--epochs 2" "--reduce gather" "--lr 0.2"; do
    [ "${options#--epochs}" = "$options" ] && set -- --steps 60 || set --
    train --data synthetic:rows=2000,test=200,features=20,classes=4,spread=8 --model mlp:16 --workers 3 "$@" --codec topk:density=0.05 $options
    python3 -c 'import json, sys
one, two = (json.load(open(name))["runs"] for name in ("first.json", "out.json"))
print(sys.argv[1], two[0]["steps"], "same" if one[2]["weights_hash"] == two[0]["weights_hash"] else "other")' "$options"
done
echo "# the log"
tersegrad train $small --codec none --codec qsgd --log log.jsonl >/dev/null 2>&1
python3 -c 'import json
lines = [json.loads(line) for line in open("log.jsonl")]
header = lines.pop(0)
print(list(header))
print(len(lines), list(lines[0]), sorted(set(map(len, lines))))
print([line["step"] for line in lines] == 2 * list(range(1, 61)), {line["codec"] for line in lines} == {"none", "qsgd"})'
echo "# what went over the wire, and what the frames are"
train $small --codec none --codec qsgd:levels=7 --reduce gather
json 'all(abs(r["wire_ratio"] - r["dense_bytes"] / r["bytes_sent"]) < 1e-9 for r in j["runs"])' <out.json
json '[r["frame_ratio"] > 1.4 * r["wire_ratio"] for r in j["runs"]]' <out.json
echo "# over slow links: the same weights, and loss by time in table, log and page"
train $small --codec none --codec qsgd:levels=7 --codec topk:density=0.05 --link 10gbit,10us --report link.html --log link.jsonl
python3 -c 'import json
one, two = (json.load(open(name))["runs"] for name in ("first.json", "out.json"))
print([a["weights_hash"] == b["weights_hash"] for a, b in zip(one, two)], {r["link"] for r in two})
lines = [json.loads(line) for line in open("link.jsonl")]
times = [line["seconds"] for line in lines[1:] if line["run"] == 0 and "seconds" in line]
print(lines[0]["link"], len(times) > 10, times == sorted(times) and times[0] > 0)'
grep -o 'Loss by time[^<]*' link.html | head -n 1
tersegrad report link.jsonl -o again.html --quiet
grep -o 'Loss by time[^<]*' again.html | head -n 1
tersegrad train $small --codec none --link 10gbit 2>/dev/null | grep -o 'link 10gbit\|at [0-9.e-]* s: the loss of every run' | sed 's/[0-9.e-]* s:/N s:/'
echo "# for people"
tersegrad train --data synthetic:features=30,rows=1000,test=100 --steps 20 --codec none --codec qsgd --device cpu/scalar 2>err.txt |
    sed 's/, openblas$/, BLAS/; s/, plain$/, BLAS/; s/[0-9][0-9.]*e-[0-9]*/N/g; s/[0-9]*\.[0-9][0-9]*/N/g; s/N [kM]*B/N B/g; s/[0-9][0-9]* kB/N B/g; s/  */ /g'
sed 's/[0-9]*\.[0-9][0-9]*/N/g; s/N [kM]*B/N B/; s/[0-9]* kB/N B/' err.txt
echo "# where nothing leaves a host, or only a part"
for hosts in "--workers 1" "--workers 4 --group 4" "--workers 4 --group 2"; do
    tersegrad train --data synthetic:rows=100,features=9 --steps 2 --codec qsgd $hosts --report page.html --log log.jsonl 2>err.txt |
        grep -o 'sent: [a-z0, ]*'
    grep -o 'wire .*' err.txt | sed 's/[0-9.]*x/Nx/g'
    tersegrad report log.jsonl -o again.html --force --quiet
    grep -h -o 'Sent: [a-z0, ]*' page.html again.html | sort -u
done
echo "# what the page says of a sparsifier's choice is what it took in that step"
# marks OPTION...: where the page has its thresholds
marks() {
    tersegrad train --data synthetic:rows=500,features=20 --model mlp:40 --steps 100 --report marks.html "$@" >/dev/null 2>&1
    grep -o 'class="mark [a-z]*' marks.html | tr '\n' ' '
    grep -o 'class="mark[^/]*' marks.html | cksum
}
plain=$(marks --codec topk:density=0.01)
[ "$(marks --codec topk:density=0.5 --density-schedule 0:0.01)" = "$plain" ] && echo "by schedule: the same"
[ "$(marks --codec topk:k=9 --density-schedule 0:0.5)" = "$(marks --codec topk:k=9)" ] && echo "of a given k: the same"
marks --codec topk:density=0.01 --warmup 50 | sed 's/ [0-9]* [0-9]*$//'
