# Every codec of the table, there and back; sizes and counts by --json.
. "$TOOLS/lib.sh"
sample in.npy 4096
for codec in $(tersegrad codecs --names); do
    try tersegrad encode "$codec" in.npy "$codec.tg"
    try tersegrad decode "$codec.tg" "$codec.npy"
done
cmp in.npy none.npy && echo "none gives the very same file"
try tersegrad encode --json topk:density=0.01 in.npy out.tg
try tersegrad decode --json out.tg out.npy
npy make small.npy '<f4' 1 -2 3.5 0
tersegrad encode none small.npy small.tg
try tersegrad decode small.tg small.npy
npy show small.npy
try_line 'tersegrad encode none - - <in.npy | tersegrad decode - - | cmp - in.npy'
