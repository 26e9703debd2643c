# The same draw gives the same bytes; each part of it changes them.
. "$TOOLS/lib.sh"
sample in.npy 4096
tersegrad encode -f qsgd in.npy a.tg >/dev/null
tersegrad encode -f --seed=0 --step 0 --tensor 0 --rank 0 qsgd in.npy b.tg >/dev/null
cmp a.tg b.tg && echo "same"
for option in --seed --step --tensor --rank; do
    tersegrad encode -f $option 1 qsgd in.npy b.tg >/dev/null
    # Beyond the header: the levels themselves.
    cmp -s -i 64 a.tg b.tg || echo "$option changes the levels"
    tersegrad inspect b.tg | grep draw
done
tersegrad encode -f --seed 18446744073709551615 --step 18446744073709551615 --tensor 4294967295 --rank 4294967295 \
    qsgd in.npy b.tg >/dev/null
tersegrad inspect --json b.tg | json '(j["seed"], j["step"], j["tensor"], j["rank"])'
