# A gradient's figures. Those of the codecs are checked for being there, not to the digit.
. "$TOOLS/lib.sh"
sample in.npy 4096
echo '$ tersegrad inspect in.npy'
tersegrad inspect in.npy | sed '/^Codecs/,$d'
tersegrad inspect in.npy | grep -c 'qsgd\|topk'
tersegrad inspect in.npy | sed -n '/^In short/,$s/[0-9][0-9.]*/N/gp'
tersegrad inspect --json --density 0.1 in.npy >out.json
json 'list(j)' <out.json
json '(j["count"], j["zeros"], j["nonfinite"], j["density"], j["k"])' <out.json
json '(sum(j["histogram"]["counts"]), len(j["histogram"]["edges"]) - len(j["histogram"]["counts"]))' <out.json
json 'j["histogram"]["edges"] == sorted(j["histogram"]["edges"])' <out.json
json 'j["histogram"]["edges"][-1] >= j["max_abs"]' <out.json
json '0 <= j["topk_ratio"] <= j["bound_tight"] <= j["bound_classic"] <= 1' <out.json
json '[round(c["bits_per_element"]) for c in j["codecs"] if c["codec"] in ("none", "fp16", "bf16")]' <out.json
json 'sorted(set(k for c in j["codecs"] for k in c))' <out.json
echo "# by hand: 1 2 3 4, and the one largest"
npy make four.npy '<f4' 3 -4 1 2
tersegrad inspect --json --density 0.25 four.npy |
    json '(j["mean"], j["std"], j["max_abs"], j["k"], j["topk_ratio"] == 14 / 30, j["bound_tight"], j["bound_classic"])'
npy make ties.npy '<f4' 1 1 1 1
tersegrad inspect --json --density 0.5 ties.npy | json '(j["k"], j["topk_ratio"], j["kurtosis"])'
npy make zeros.npy '<f2' 0 0 0
try_line 'tersegrad inspect zeros.npy | head -n 12'
tersegrad inspect --json zeros.npy | json '(j["dtype"], j["zeros"], j["topk_ratio"])'
npy make empty.npy '<f4' --shape '(0,)'
try tersegrad inspect empty.npy
tersegrad inspect --json empty.npy | json '(j["count"], j["mean"], j["topk_ratio"], sum(j["histogram"]["counts"]))'
npy make wide.npy '<f8' 1 2
try_line 'tersegrad inspect wide.npy | head -n 3'
