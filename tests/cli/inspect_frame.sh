# A frame's fields, sizes and verdict.
. "$TOOLS/lib.sh"
sample in.npy 4096
tersegrad encode -f --seed 5 --step 6 --tensor 7 --rank 8 qsgd:levels=7,coding=entropy in.npy frame.tg >/dev/null
try tersegrad inspect frame.tg
try tersegrad inspect --json frame.tg
tersegrad encode -f --no-checksum topk:density=0.05,values=levels in.npy frame.tg >/dev/null
try tersegrad inspect frame.tg
tersegrad inspect --json frame.tg | json '(j["checksum_ok"], j["bytes"], j["selected"])'
npy make none.npy '<f2' --shape '(0,)'
tersegrad encode -f bf16 none.npy frame.tg >/dev/null
try tersegrad inspect frame.tg
try_line 'tersegrad inspect - <frame.tg | head -n 1'
