# Predictions: the table, JSON, layouts, and everything that is refused.
. "$TOOLS/lib.sh"
echo '[]' >empty.json
if tersegrad plan --layout empty.json 2>&1 | grep -q 'built without jansson'; then
    echo "libjansson-dev not installed when the command was built"
    exit 77
fi
try tersegrad plan --model resnet50 --world 8 --rate 10gbit --latency 50us
try tersegrad plan --model vgg16 --world 16 --per-node 4 --rate 1gbit --codec qsgd --codec topk:density=0.001
echo "# nothing to gain"
try tersegrad plan --rate 400gbit --device cuda --codec qsgd
try tersegrad plan --world 1 --codec qsgd
echo "# sent: what one rank sends to other hosts, in every row; nothing where all ranks are on one host"
sent='{r["codec"] + " " + r["algorithm"]: r["bytes_sent"] for r in j["rows"]}'
tersegrad plan --world 2 --per-node 2 --codec none --codec qsgd --json | json "$sent"
tersegrad plan --world 2 --per-node 2 --flat --codec none --codec qsgd --json | json "$sent"
tersegrad plan --world 16 --per-node 16 --codec none --json | json "$sent"
echo "# on one host they stay at one level, as training does"
for flat in "" --flat; do
    tersegrad plan --world 4 --per-node 4 --codec none --codec qsgd $flat --json | json '[r for r in j["rows"]]' | cksum
done | uniq | wc -l
echo "# every rank with every other, four to a host: to four of seven; in a ring, what the last of a host sends"
tersegrad plan --world 8 --codec none --json | json '[round(r["bytes_sent"] / 1e3) for r in j["rows"]]'
tersegrad plan --world 8 --per-node 4 --flat --codec none --json | json '[round(r["bytes_sent"] / 1e3) for r in j["rows"]]'
tersegrad plan --world 8 --per-node 4 --flat --codec none --json | json '[round(r["bytes_sent"] * 7 / 4e3) for r in j["rows"][1:]]'
echo "# a host of two ranks beside one of one: one owner, whose bytes are all that its link carries, 102 MB in 4.3 s"
tersegrad plan --world 3 --per-node 2 --rate 200mbit --codec none --json | json '[round(r["seconds"], 2) for r in j["rows"][1:]]'
echo "# every input is marked: those that are given, and those that are not"
tersegrad plan --codec qsgd --json | json '"\n".join(j["inputs"])'
tersegrad plan --codec qsgd --model vgg16 --world 8 --per-node 2 --flat --kappa 1.5 --min-size 1000 --json | json '"\n".join(j["inputs"])'
echo "# no line is wider than 80 columns"
tersegrad plan --model gpt2 --world 1000000 --rate 100mbit | awk 'length > 80'
echo "# JSON: one object, twice the same bytes"
tersegrad plan --json >one.json
tersegrad plan --json >two.json
cmp one.json two.json && echo same
json '(j["recommended"]["codec"], j["recommended"]["feedback"], j["recommended"]["algorithm"])' <one.json
json 'sorted(j)' <one.json
json 'sorted(j["rows"][0])' <one.json
json 'all(r["low"] <= r["seconds"] <= r["high"] for r in j["rows"])' <one.json
json 'j["rows"][0]["codec"] + " " + j["rows"][0]["algorithm"]' <one.json
echo "# the slower the network, the longer the step"
for rate in 100gbit 10gbit 1gbit 100mbit; do
    tersegrad plan --rate $rate --json --codec qsgd | json '[round(r["seconds"], 4) for r in j["rows"]]'
done
echo "# simulated: without chance as predicted; the same seed, the same bytes"
difference='max(abs(r["seconds"] / r["uniform_seconds"] - 1) for r in j["rows"]) < 0.01'
tersegrad plan --simulate --jitter 0 --world 64 --per-node 4 --json | json "$difference"
tersegrad plan --simulate --jitter 0.1 --seed 7 --json >one.json
tersegrad plan --simulate --jitter 0.1 --seed 7 --json >two.json
tersegrad plan --simulate --jitter 0.1 --seed 8 --json >three.json
cmp one.json two.json && echo same
cmp -s one.json three.json || echo other
try tersegrad plan --world 10000 --per-node 8 --rack 32 --oversubscription 4 --stragglers 0.01 --simulate --codec topk:density=0.001
tersegrad plan --simulate --stragglers 0.2 --device cuda --codec qsgd | grep -A1 '^- simulated'
printf '[{"name": "a", "offset": 0, "count": 1}]' >one.json
tersegrad plan --layout one.json --backward 0s --world 1 --simulate --codec none --json | json '[r["seconds"] for r in j["rows"]]'
try tersegrad plan --rack 32
try tersegrad plan --simulate --world 100001
echo "# a page"
try tersegrad plan --codec qsgd --report page.html >page.txt && cmp -s page.txt /dev/null || echo "with the table"
grep -c '<figure>' page.html
grep -c 'without what was simulated' page.html
tersegrad plan --codec qsgd --simulate --report page.html >/dev/null
grep -c 'without what was simulated' page.html
try tersegrad plan --report missing/page.html
echo "# the world that was asked about is on the chart and in the map: a point of each line, and a row of 15 rates"
for world in 1 3 8 1024 10000 500000; do
    tersegrad plan --world $world --per-node 1 --codec qsgd --report page.html >/dev/null
    echo "$world: $(grep -c "^ranks $world</title>" page.html) cells of $(grep -c '^ranks .*</title>' page.html)," \
        "$(grep -c "^ranks $world\$" page.html) points"
done
echo "# which codec wins somewhere does not depend on the world that was asked about: only what is there by itself is new"
for world in 1 8 1024; do
    tersegrad plan --world $world --codec none --codec qsgd --report page.html >table.txt
    tr '\n' ' ' <page.html | grep -o '<title>[^<]*Gbit[^<]*ranks [0-9]*</title>' | grep -v 'ranks 1<' >cells$world.txt
    echo "$world: $(wc -l <cells$world.txt) cells, $(grep -c 'tree' table.txt) tree," \
        "$(grep -c 'shard' table.txt) shard"
    cmp -s cells1.txt cells$world.txt && echo "the same"
done
cat >net.json <<'END'
[ {"name": "first.weight", "shape": [200, 500], "offset": 0, "count": 100000},
  {"name": "last.weight", "shape": [1000, 1000], "offset": 100000, "count": 1000000} ]
END
cat >times.json <<'END'
[ {"name": "last.weight", "offset": 100000, "count": 1000000, "ready": 0.001},
  {"name": "first.weight", "offset": 0, "count": 100000, "ready": 0.004} ]
END
echo "# layouts"
try tersegrad plan --layout net.json --backward 4ms --forward 2ms --codec qsgd
try tersegrad plan --layout times.json --codec qsgd
try tersegrad plan --layout times.json --backward 5ms --json --codec qsgd | sed -n '/_seconds/p' | head -3
try tersegrad plan --layout net.json
try tersegrad plan --layout times.json --backward 3ms
bad() {
    printf '%s' "$1" >bad.json
    echo "# $1" | cut -c 1-100
    tersegrad plan --layout bad.json --backward 1ms
    echo "-> $?"
}
bad '[]'
bad '{'
bad '[{"offset": 0, "count": 1}]'
bad '[{"name": "", "offset": 0, "count": 1}]'
bad '[{"name": "a", "offset": 0, "count": 0}]'
bad '[{"name": "a", "offset": 0, "count": 1}, {"name": "b", "offset": 1, "count": 1}, {"name": "a", "offset": 2, "count": 1}]'
bad '[{"name": "a", "offset": 0, "count": 1, "ready": 2}, {"name": "b", "offset": 1, "count": 1, "ready": 1}]'
bad '[{"name": "a", "offset": 0, "count": 1, "ready": 2}, {"name": "b", "offset": 1, "count": 1}]'
bad '[{"name": "a", "offset": 0, "count": 1, "ready": -1}]'
bad '[{"name": "a", "offset": 0, "count": 1, "ready": "soon"}]'
bad '[{"name": "a", "offset": 0, "count": 9223372036854775807}]'
bad '[{"name": "a", "offset": 0, "count": 10}, {"name": "b", "offset": 9, "count": 1}]'
bad '[{"name": "b", "offset": 5, "count": 10}, {"name": "c", "offset": 20, "count": 1}, {"name": "a", "offset": 0, "count": 6}]'
bad '[{"name": "a", "offset": 0, "count": 10}, {"name": "b", "offset": 0, "count": 10}]'
echo "# layers may leave elements out, and be in any order"
echo '[{"name": "a", "offset": 10, "count": 5}, {"name": "b", "offset": 0, "count": 9}]' >apart.json
tersegrad plan --layout apart.json --backward 1ms --codec qsgd --json | json 'j["elements"]'
echo "# numbers that are none"
for world in 0 -1 1000001 1e3 four; do try tersegrad plan --world $world 2>&1 | head -n 2; done
for rate in 500bit 1001tbit 0gbit 0 10 -1gbit infgbit nan gbit 1e99tbit 10gb; do try tersegrad plan --rate $rate; done
for latency in 5000s 0us 0 50 -1us infs nanms us 1e99s; do try tersegrad plan --latency $latency; done
try tersegrad plan --backward 80
try tersegrad plan --backward 2000000s
try tersegrad plan --forward -80ms
try tersegrad plan --per-node 0
try tersegrad plan --kappa 0.5
try tersegrad plan --model resnet5
try tersegrad plan --model vgg16 --layout net.json --backward 1ms
try tersegrad plan --codec qsdg
try tersegrad plan --codec qsgd --feedback efe
try tersegrad plan --codec qsgd --feedback dgc:momentum=0.9
tersegrad plan --feedback dgc:momentum=0.9 --json | json '[r["codec"] + " " + r["feedback"] for r in j["rows"][1::2]]'
try tersegrad plan --layout missing.json
