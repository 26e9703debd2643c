# Predictions from a probe, and probes that are refused or doubtful. Days and machines are left out of what is compared.
. "$TOOLS/lib.sh"
echo '[]' >empty.json
if tersegrad plan --layout empty.json 2>&1 | grep -q 'built without jansson'; then
    echo "libjansson-dev not installed when the command was built"
    exit 77
fi
# probe MACHINE DATE HIGH [REDUCTIONS]: a network of 1 Gbit/s
probe() {
    wire='"points": [[64, 2e-5, 1.9e-5, 2.2e-5], [65536, 6e-4, 5.9e-4, 6.1e-4], [4194304, 0.036, 0.035, '$3']]'
    cat <<END
{"tersegrad_probe": 2, "machine": "$1", "world": 4, "per_node": 1, "sharing": 1, "date": "$2",
 "command": "tersegrad plan --probe p.json", "tersegrad": "0.1.0", "transport": "mpi, openmpi", "device": "cpu/avx2",
 "network": {"all-gather": {"hidden": 1e-5, "burst": 0.004, $wire},
             "all-to-all": {"hidden": 1e-5, "burst": 0.004, $wire}, "ring": {"hidden": 0, "burst": 0, $wire}},
 "coding": [
  {"spec": "qsgd", "feedback": "none", "algorithm": "gather", "encode": 1.5e-10, "check": 2e-11, "add": 1.2e-10,
   "frame": 1e-6, "low": 0.95, "high": 1.1, "reductions": [${4:-}]},
  {"spec": "qsgd", "feedback": "none", "algorithm": "shard", "encode": 1.7e-10, "check": 2e-11, "add": 2.2e-10,
   "frame": 1e-6, "low": 0.95, "high": 1.1, "reductions": [${4:-}]}],
 "kappa": 2}
END
}
masked() {
    "$@" 2>&1 | sed -E 's/this is .*\); probe here/this is ...); probe here/; s/[0-9]+ days old/N days old/'
}
today=$(date -u +%Y-%m-%dT%H:%M:%SZ)
probe "elsewhere, 2 processors" "$today" 0.037 >other.json
echo "# of another machine"
masked tersegrad plan --probe other.json --codec qsgd
tersegrad plan --probe other.json >out 2>&1
echo "-> $?"
masked tersegrad plan --probe other.json --insist --codec qsgd --codec fp16
echo "# what is asked for goes before what was probed"
masked tersegrad plan --probe other.json --insist --codec qsgd --world 16 --per-node 2 --kappa 1 | grep -E 'ranks|stated|extrapolated'
masked tersegrad plan --probe other.json --insist --codec qsgd --rate 10gbit --latency 20us | grep -E 'stated|measured'
echo "# far from the probe: coding is, whatever the network"
for options in "" "--rate 10gbit --latency 20us"; do
    # shellcheck disable=SC2086
    masked tersegrad plan --probe other.json --insist --codec qsgd --codec fp16 --world 100 $options --json | grep -v warning >far.json
    json '"\n".join(note for note in j["inputs"] if "extrapolated" in note)' <far.json
    json '[r["extrapolated"] for r in j["rows"]]' <far.json
done
echo "# one of this machine needs no insisting, and is not doubted"
machine=$(tersegrad plan --probe other.json 2>&1 | sed -n 's/.*this is \(.*\)); probe here.*/\1/p')
probe "$machine" "$today" 0.037 >own.json
tersegrad plan --probe own.json --codec qsgd >/dev/null
echo "-> $?"
echo "# half a network: the rest is not made up where it was measured"
try tersegrad plan --probe own.json --latency 50us
try tersegrad plan --probe own.json --rate 10gbit
echo "# no input goes unmentioned: what was not probed, of many codecs; and what comes after it"
tersegrad plan --probe own.json --simulate --report page.html --json >notes.json
json '"\n".join(note for note in j["inputs"] if "probed" in note or "simulated" in note)' <notes.json
tersegrad plan --probe own.json --simulate | sed -n "/assumed: coding as/,\$p"
for words in 'not probed' 'simulated: 20 steps' 'seed 1'; do grep -c "<dt>input</dt>.*$words" page.html; done
json '[len(note) > 200 for note in j["inputs"] if "not probed" in note]' <notes.json
echo "# what is assumed within hosts, of which a probe has nothing; messages take their time there"
tersegrad plan --probe own.json --codec qsgd --world 4 --per-node 2 | grep 'of one host'
tersegrad plan --probe own.json --codec qsgd --world 4 --per-node 2 --flat | grep -c 'of one host'
echo '[{"name": "a", "offset": 0, "count": 64}]' >tiny.json
tersegrad plan --probe own.json --layout tiny.json --backward 0s --codec none --world 128 --per-node 64 --json | json 'j["rows"][2]["wire_seconds"] > 60 * 5e-6'
echo "# what was probed on one host says nothing of links between hosts, nor what was probed over links of one host"
sed 's/"per_node": 1/"per_node": 4/' own.json >host.json
for options in "--world 4 --per-node 2" "--world 4 --per-node 2 --flat" "--world 8"; do
    # shellcheck disable=SC2086
    try tersegrad plan --probe host.json --codec qsgd $options
done
tersegrad plan --probe host.json --codec qsgd --world 8 --rate 1gbit --latency 50us | grep -E 'exchanges|links|of one host'
tersegrad plan --probe host.json --codec qsgd | grep -E 'exchanges|of one host'
tersegrad plan --probe host.json --codec qsgd --report page.html >page.txt
for world in 4 8; do echo "$world: $(grep -c "^ranks $world\$" page.html) points"; done
grep -c 'on one host says nothing of several' page.html
for options in "" --flat; do
    # shellcheck disable=SC2086
    tersegrad plan --probe own.json --codec none --per-node 4 $options --json >inside.json
    json '"\n".join(note for note in j["inputs"] if "of one host" in note or "exchanges" in note)' <inside.json
    json '[round(1e3 * r["wire_seconds"], 1) for r in j["rows"]]' <inside.json
done
echo "# a codec that was probed with another feedback"
tersegrad plan --probe own.json --codec qsgd --feedback ef | sed -n '/assumed: coding/,$p'
echo "# one that was made on another device, or on the one that is asked for"
try tersegrad plan --probe own.json --device cuda --codec qsgd
sed 's|cpu/avx2|cuda:0|' own.json >card.json
tersegrad plan --probe card.json --codec fp16 | grep 'assumed: coding'
try tersegrad plan --probe card.json --device cpu --codec qsgd
tersegrad plan --probe own.json --device cpu --codec qsgd --json | json 'len(j["rows"])'
echo "# a codec that was probed by one algorithm alone"
tr '\n' ' ' <own.json | sed 's/,   {"spec": "qsgd", "feedback": "none", "algorithm": "shard".*reductions": \[\]}\]/]/' >half.json
tersegrad plan --probe half.json --codec qsgd --codec fp16 | sed -n "/assumed: coding as/,\$p"
echo "# reductions that were measured count: on the network that was probed, and in one level"
probe "$machine" "$today" 0.037 "[1, 1048576, 0.02, 0.019, 0.021], [64, 1024, 0.001, 0.0009, 0.0011]" >fitted.json
for file in own fitted; do
    tersegrad plan --probe $file.json --codec qsgd --json | json '[round(j["rows"][1][k], 4) for k in ("low", "seconds", "high")]'
done
for more in "--rate 1gbit --latency 50us" "--per-node 2" "--per-node 4"; do
    for file in own fitted; do
        # shellcheck disable=SC2086
        tersegrad plan --probe $file.json --codec qsgd $more --json | json 'j["rows"]' >$file.out
    done
    cmp own.out fitted.out && echo "$more: the same"
done
echo "# reductions in two levels count where they were measured, on hosts of as many ranks; elsewhere intervals are wider"
sed 's/"per_node": 1/"per_node": 2/' own.json >flat.json
sed 's/"reductions"/"two_levels": [[1, 1048576, 0.03, 0.029, 0.031]], "reductions"/' flat.json >levels.json
for options in "flat" "levels" "levels --world 8 --per-node 4" "levels --world 2" "levels --flat"; do
    # shellcheck disable=SC2086
    set -- $options
    file=$1
    shift
    echo "$options:"
    tersegrad plan --probe "$file.json" --codec qsgd "$@" --json >out.json
    json '[round(j["rows"][1][k], 4) for k in ("low", "seconds", "high")]' <out.json
    json '"\n".join(note for note in j["inputs"] if "two levels" in note)' <out.json
done
echo "# old, scattered: warnings, and wider intervals; what says nothing is refused"
probe "$machine" 2020-02-29T12:00:00Z 0.037 >old.json
probe "$machine" "$today" 0.066 | sed 's/6.1e-4/1e-3/g' >scattered.json
for file in own old scattered; do
    masked tersegrad plan --probe $file.json --codec qsgd --json >$file.out
    grep warning $file.out
    grep -v warning $file.out | json '[round(j["rows"][1][k], 4) for k in ("low", "seconds", "high")]'
done
probe "$machine" "$today" 0.037 "[1, 1048576, 0.02, 0.005, 0.07], [64, 1024, 0.001, 0.0001, 0.005]" >nothing.json
try tersegrad plan --probe nothing.json --codec qsgd
tersegrad plan --probe nothing.json --codec qsgd --insist 2>&1 | grep warning
echo "# options that are not for it"
try tersegrad plan --probe own.json --seconds 10
try tersegrad plan --seconds 10
try tersegrad plan --insist
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 tersegrad plan --probe new.json --world 4
echo "-> $?"
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 tersegrad plan --probe new.json --json
echo "-> $?"
bad() {
    sed "$1" own.json >bad.json
    echo "# $1"
    tersegrad plan --probe bad.json
    echo "-> $?"
}
bad 's/"tersegrad_probe": 2/"tersegrad_probe": 1/'
bad 's/"tersegrad_probe": 2,//'
bad '$d'
bad 's/"command": "/&\\u0000/'
bad 's/0.036/1e-5/'
bad 's/"world": 4/"world": 0/'
bad 's/2e-5/-1/'
bad 's/"spec": "qsgd"/"spec": "qsdg"/'
bad 's/"reductions": \[\]/"reductions": 2/'
try tersegrad plan --probe missing.json
try tersegrad plan --probe own.json --seconds 31 2>&1 | head -n 2
