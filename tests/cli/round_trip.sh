# Every codec of the table, there and back; sizes and counts by --json.
. "$TOOLS/lib.sh"
sample in.npy 4096
for codec in $(tersegrad codecs --names); do
    try tersegrad encode -f "$codec" in.npy "$codec.tg"
    try tersegrad decode -f "$codec.tg" "$codec.npy"
done
cmp in.npy none.npy && echo "none gives the very same file"
try tersegrad encode -f --json topk:density=0.01 in.npy out.tg
try tersegrad decode -f --json out.tg out.npy
npy make small.npy '<f4' 1 -2 3.5 0
tersegrad encode -f none small.npy small.tg
try tersegrad decode -f small.tg small.npy
npy show small.npy
try_line 'tersegrad encode -f none - - <in.npy | tersegrad decode -f - - | cmp - in.npy'
