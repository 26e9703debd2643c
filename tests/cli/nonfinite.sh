# Infinities and NaN under each policy.
. "$TOOLS/lib.sh"
npy make in.npy '<f4' 1 2 nan 4 inf -inf
for policy in reject zero trust; do
    try tersegrad encode -f --nonfinite $policy none in.npy $policy.tg
done
ls
tersegrad decode -f zero.tg out.npy
npy show out.npy
try tersegrad encode -f none in.npy out.tg
tersegrad encode -f --nonfinite zero --json qsgd in.npy out.tg | json '(j["count"], j["dropped"], j["saturated"])'
npy make in.npy '<f4' 1 1e6 -1e6
tersegrad encode -f --json fp16 in.npy out.tg | json '(j["count"], j["dropped"], j["saturated"])'
tersegrad inspect --json in.npy | json '(j["count"], j["nonfinite"])'
npy make in.npy '<f4' nan inf
tersegrad inspect --json in.npy | json '(j["count"], j["nonfinite"], j["mean"], j["max_abs"], j["topk_ratio"])'
try tersegrad bench -n 100 --seconds 0 --codec none --distribution in.npy
