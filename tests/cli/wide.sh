# Help, tables and sentences for people fit 80 columns; --wide shows every column. What error means is said.
. "$TOOLS/lib.sh"
# fits NAME <output: the widest line
fits() {
    python3 -c 'import sys
text = sys.stdin.read()
widest = max(text.splitlines(), key=len)
print(sys.argv[1] + ":", "fits" if len(widest) <= 80 else "%d columns: %s" % (len(widest), widest))' "$1"
}
sample net.npy 4096
cat >net.layout.json <<'END'
[{"name": "transformer.encoder.layers.11.self_attention.query_key_value.weight", "shape": [64, 32], "offset": 0, "count": 2048},
 {"name": "transformer.encoder.layers.11.self_attention.query_key_value.bias", "offset": 2048, "count": 2048}]
END
tersegrad codecs | fits codecs
tersegrad inspect net.npy | fits inspect
tersegrad bench -n 1000 --seconds 0 | fits bench
tersegrad bench -n 1000 --seconds 0 --feedback | fits "bench --feedback"
tersegrad bench -n 1000 --seconds 0 --compare --codec qsgd | fits "bench --compare"
tersegrad bench -n 1000 --seconds 0 --codec topk:density=0.01,values=levels,levels=7,bucket=512,norm=max,coding=entropy |
    fits "a long spec"
tersegrad bench -n 100000 --seconds 0 --decades --codec qsgd:levels=127,norm=l2,coding=entropy | fits "bench --decades"
tersegrad train --data synthetic:rows=500,features=20,classes=4 --model mlp:16 --steps 5 --codec none --feedback none \
    --codec qsgd:levels=127,bucket=512,norm=l2,coding=entropy --feedback ecq:alpha=0.2,beta=0.99 2>/dev/null | fits train
tersegrad plan | fits plan
tersegrad plan --codec topk:density=0.01,values=levels,levels=7,bucket=512,norm=max,coding=entropy \
    --feedback dgc:momentum=0.9,clip=0 --rate 100mbit | fits "plan of a long spec"
tersegrad train --data synthetic:rows=500,features=20,classes=4 --model mlp:16 --steps 5 --codec none --log run.jsonl \
    >/dev/null 2>&1
{ tersegrad report run.jsonl -o page.html 2>/dev/null || echo "built without jansson"; } | fits report
tersegrad --help | fits "tersegrad --help"
for command in $(tersegrad --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    tersegrad help "$command" | fits "help $command"
done
echo "# all columns"
tersegrad train --data syn-256 --steps 2 --codec none --wide 2>/dev/null | grep -o 'codec .*feedback.*update s' | sed 's/  */ /g'
tersegrad inspect --wide net.npy | grep -c '64x32'
tersegrad bench -n 1000 --seconds 0 --codec qsgd --wide | grep -o 'encode ms.*'
echo "# the error that is meant"
tersegrad inspect net.npy | grep -B 1 -A 2 'error:'  | sed 's/  */ /g'
tersegrad bench -n 1000 --seconds 0 --codec qsgd | grep 'error:'
