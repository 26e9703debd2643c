# Specs that no codec takes: exit code 2 before any file is touched.
. "$TOOLS/lib.sh"
for spec in "" qsg qsgd:levels=0 qsgd:levels=7,levels=7 qsgd:color=red topk:density=0 topk:density=2 \
    topk:k=1,density=0.1 topk:density=x topk:density=0.0015000001 terngrad:clip=2.50001 qsgd:norm=foo qsgd:bucket=5x \
    qsgd:levels=2.5; do
    try tersegrad encode "$spec" missing.npy out.tg
done
try tersegrad bench --codec qsgd:levels=99999 --json
ls
