# Predictions from a probe, and probes that are refused or doubtful. Days and machines are left out of what is compared.
. "$TOOLS/lib.sh"
echo '[]' >empty.json
if tersegrad plan --layout empty.json 2>&1 | grep -q 'built without jansson'; then
    echo "libjansson-dev not installed when the command was built"
    exit 77
fi
# probe MACHINE DATE HIGH: a network of 1 Gbit/s
probe() {
    wire='"points": [[64, 2e-5, 1.9e-5, 2.2e-5], [65536, 6e-4, 5.9e-4, 6.1e-4], [4194304, 0.036, 0.035, '$3']]'
    cat <<END
{"tersegrad_probe": 1, "machine": "$1", "world": 4, "per_node": 1, "date": "$2",
 "command": "tersegrad plan --probe p.json", "tersegrad": "0.1.0", "transport": "mpi, openmpi", "device": "cpu/avx2",
 "network": {"all-gather": {"hidden": 1e-5, "burst": 0.004, $wire},
             "all-to-all": {"hidden": 1e-5, "burst": 0.004, $wire}, "ring": {"hidden": 0, "burst": 0, $wire}},
 "shared": 0.25,
 "coding": [
  {"spec": "qsgd", "feedback": "none", "algorithm": "gather", "encode": 1.5e-10, "check": 2e-11, "add": 1.2e-10,
   "frame": 1e-6, "low": 0.95, "high": 1.1},
  {"spec": "qsgd", "feedback": "none", "algorithm": "shard", "encode": 1.7e-10, "check": 2e-11, "add": 2.2e-10,
   "frame": 1e-6, "low": 0.95, "high": 1.1}],
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
masked tersegrad plan --probe other.json --insist --codec qsgd --rate 10gbit | grep -E 'stated|measured'
echo "# one of this machine needs no insisting, and is not doubted"
machine=$(tersegrad plan --probe other.json 2>&1 | sed -n 's/.*this is \(.*\)); probe here.*/\1/p')
probe "$machine" "$today" 0.037 >own.json
tersegrad plan --probe own.json --codec qsgd >/dev/null
echo "-> $?"
echo "# old, scattered: warnings, and wider intervals"
probe "$machine" 2020-02-29T12:00:00Z 0.037 >old.json
probe "$machine" "$today" 0.066 | sed 's/6.1e-4/1e-3/g' >scattered.json
for file in own old scattered; do
    masked tersegrad plan --probe $file.json --codec qsgd --json >$file.out
    grep warning $file.out
    grep -v warning $file.out | json '[round(j["rows"][1][k], 4) for k in ("low", "seconds", "high")]'
done
bad() {
    sed "$1" own.json >bad.json
    echo "# $1"
    tersegrad plan --probe bad.json
    echo "-> $?"
}
bad 's/"tersegrad_probe": 1/"tersegrad_probe": 2/'
bad 's/"tersegrad_probe": 1,//'
bad '$d'
bad 's/0.036/1e-5/'
bad 's/"world": 4/"world": 0/'
bad 's/2e-5/-1/'
bad 's/"spec": "qsgd"/"spec": "qsdg"/'
bad 's/"shared": 0.25/"shared": 2/'
try tersegrad plan --probe missing.json
try tersegrad plan --probe own.json --seconds 31 2>&1 | head -n 2
