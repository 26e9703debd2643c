# `tersegrad report`: the logs of several trainings on one page.
. "$TOOLS/lib.sh"
train() {
    tersegrad train --data synthetic:rows=2000,test=1500,features=20,classes=4 --model mlp:16 --workers 3 --json "$@" 2>/dev/null
}
train --steps 60 --codec none --codec topk:density=0.05 --log a.jsonl >a.json
train --steps 60 --codec topk:density=0.2 --codec topk:density=0.05 --log b.jsonl >b.json
if tersegrad report a.jsonl -o probe.html 2>&1 | grep -q 'built without jansson'; then
    echo "libjansson-dev not installed when the command was built"
    exit 77
fi
try tersegrad report a.jsonl b.jsonl -o page.html
echo "# every run is there, under a name that tells it apart"
grep -o '<tr><th scope="row">.*' page.html | sed 's/<svg.*<\/svg>//; s/<[^>]*>/ /g' | awk '{ print $1, $2, $3 }'
echo "# the figures are those of the trainings"
tersegrad report a.jsonl b.jsonl -o page.html -f --json >both.json
python3 -c 'import json
runs = [run for name in ("a.json", "b.json") for run in json.load(open(name))["runs"]]
logged = json.load(open("both.json"))["runs"]
same = lambda a, b: abs(a - b) <= 1e-8 * abs(a)
print(len(runs), len(logged))
for field in ("final_loss", "accuracy", "frame_ratio", "wire_ratio"):
    print(field, all(same(a[field], b[field]) for a, b in zip(runs, logged)))
print(all(a[f] == b[f] for a, b in zip(runs, logged) for f in ("codec", "feedback", "steps", "bytes_sent")))'
echo "# where it is from"
grep -o '<dt>.*' page.html | sed 's/<[^>]*>/ /g; s/20[0-9][0-9]-.*UTC/DATE/; s/host .*/host HOST/; s/tersegrad [0-9.]* *$/tersegrad VERSION/'
echo "# a log that was cut short; one that is none; what exists"
head -c 20000 a.jsonl >cut.jsonl
tersegrad report cut.jsonl -o cut.html && grep -c '(stopped)' cut.html
echo '{"run": 0}' >bad.jsonl
try tersegrad report bad.jsonl -o bad.html
echo 'nonsense' >bad.jsonl
tersegrad report bad.jsonl -o bad.html 2>&1 | cut -c 1-58
: >empty.jsonl
try tersegrad report empty.jsonl -o bad.html
try tersegrad report missing.jsonl -o bad.html
try tersegrad report a.jsonl -o page.html
try tersegrad report a.jsonl -o a.jsonl --force
try tersegrad report
try tersegrad report a.jsonl
try tersegrad report a.jsonl --force -q
