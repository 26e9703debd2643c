# A gradient's layers: found by name, given, wrong, hostile.
. "$TOOLS/lib.sh"
echo '[]' >empty.json
npy make one.npy '<f4' 1
if tersegrad inspect --layout empty.json one.npy 2>&1 | grep -q 'built without jansson'; then
    echo "libjansson-dev not installed when the command was built"
    exit 77
fi
npy make net-step20.npy '<f4' 1 2 3 4 0.5 0
layers() {
    tersegrad inspect "$@" >out.txt
    code=$?
    sed -n '/^Layers/,/^$/p' out.txt
    echo "-> $code"
}
echo "# none"
layers net-step20.npy
cat >net.layout.json <<'END'
[ {"name": "first.weight", "shape": [2, 2], "offset": 0, "count": 4},
  {"name": "first.bi\u00e4s", "shape": [2], "offset": 4, "count": 2} ]
END
echo "# NAME.layout.json for NAME-SUFFIX.npy"
layers net-step20.npy
echo "# one of its own comes first"
echo '[{"name":"own","offset":1,"count":2}]' >net-step20.layout.json
layers net-step20.npy
tersegrad inspect --json net-step20.npy | json 'j["layers"][0]'
echo "# given"
layers --layout net.layout.json net-step20.npy
layers --layout missing.json net-step20.npy
bad() {
    printf '%s' "$1" >bad.json
    echo "# $1" | cut -c 1-100
    layers --layout bad.json net-step20.npy
}
bad ''
bad '{'
bad '[1'
bad '{}'
bad '[{}]'
bad '[{"name": 1, "offset": 0, "count": 1}]'
bad '[{"name": "a", "offset": 0, "count": 7}]'
bad '[{"name": "a", "offset": 7, "count": 0}]'
bad '[{"name": "a", "offset": -1, "count": 1}]'
bad '[{"name": "a", "offset": 0, "count": 1.5}]'
bad '[{"name": "a", "offset": 18446744073709551615, "count": 2}]'
bad '[{"name": "a", "offset": 0, "count": 4, "shape": [3]}]'
bad '[{"name": "a", "offset": 0, "count": 4, "shape": 4}]'
bad '[{"name": "a\u001b[31m", "offset": 0, "count": 4}]'
bad '[{"name": "\x", "offset": 0, "count": 4}]'
bad '[{"name": "a", "offset": 0, "count": 4}] more'
bad "$(printf '[%.0s' $(seq 3000))"
echo "# one that lies there and is wrong is left aside"
echo '[{"name":"own","offset":1,"count":20}]' >net-step20.layout.json
layers net-step20.npy
