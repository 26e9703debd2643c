# The table of codecs. The machine's devices differ, so their line is left out.
. "$TOOLS/lib.sh"
try tersegrad codecs --names
echo '$ tersegrad codecs'
tersegrad codecs | grep -v '^Devices'
tersegrad codecs | grep -c '^Devices of this machine: .*cpu'
tersegrad codecs --json | json '[(c["name"], bool(c["summary"])) for c in j["codecs"]]'
tersegrad codecs --json | json '[[p["name"] for p in c["parameters"]] for c in j["codecs"]]'
tersegrad codecs --json | json 'sorted({k for c in j["codecs"] for p in c["parameters"] for k in p})'
tersegrad codecs --json | json '[d for d in j["devices"] if d == "cpu/scalar"]'
