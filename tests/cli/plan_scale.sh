# Predictions for a million ranks take less than half a second. The limit is for processor time, because a busy machine
# takes longer by the clock, and forty times as much. Looking at all hosts for each rank took 154 seconds.
. "$TOOLS/lib.sh"
for model in gpt2 resnet152; do
    for per_node in 1 8; do
        (
            ulimit -t 20
            tersegrad plan --model $model --world 1000000 --per-node $per_node --json >out.json
        )
        echo "$model, $per_node to a host -> $?"
    done
done
echo "# ten thousand simulated ranks take 3 seconds: what is far too slow to be chosen is left out, and said to be"
(
    ulimit -t 200
    tersegrad plan --world 10000 --simulate --rack 32 --oversubscription 4 --stragglers 0.01 --json >out.json
)
echo "-> $?"
json 'sum(r["events"] for r in j["rows"]) < 4e8' <out.json
json '[r["codec"] + " " + r["algorithm"] for r in j["rows"] if not r["simulated"]]' <out.json
json '[r["seconds"] == r["uniform_seconds"] for r in j["rows"] if not r["simulated"]]' <out.json
json '"\n".join(note for note in j["inputs"] if "not simulated" in note)' <out.json
json 'all(r["simulated"] for r in j["rows"] if r["algorithm"] in ("ring", "tree"))' <out.json
(
    ulimit -t 200
    tersegrad plan --world 10000 --simulate --codec none --report page.html | grep -E '^  none|^- not'
)
grep -c '<td>&gt;[0-9]* s</td>' page.html
