# Wrong usage: exit code 2, and a message that names the option, the value and the range.
. "$TOOLS/lib.sh"
try tersegrad encode
try tersegrad encode qsgd
try tersegrad encode qsgd in.npy
try tersegrad encode qsgd in.npy out.tg more
try tersegrad encode --sed 1 qsgd in.npy out.tg
try tersegrad encode -x qsgd in.npy out.tg
try tersegrad encode --seed
try tersegrad encode --seed -1 qsgd in.npy out.tg
try tersegrad encode --seed 18446744073709551616 qsgd in.npy out.tg
try tersegrad encode --rank 4294967296 qsgd in.npy out.tg
try tersegrad encode --rank= qsgd in.npy out.tg
try tersegrad encode --rank=one qsgd in.npy out.tg
try tersegrad encode --nonfinite drop qsgd in.npy out.tg
try tersegrad encode --no-checksum=yes qsgd in.npy out.tg
try tersegrad encode --json qsgd in.npy -o -
try tersegrad decode --json in.tg -
try tersegrad decode --dtype f8 in.tg out.npy
try tersegrad inspect
try tersegrad inspect --density 0 in.npy
try tersegrad inspect --density 2 in.npy
try tersegrad inspect --density nan in.npy
try tersegrad inspect --density 0x1p-3 in.npy
try tersegrad bench -n 0
try tersegrad bench -n 1e6
try tersegrad bench -n
try tersegrad bench --seconds forever
try tersegrad bench --distribution gausian
try_line "tersegrad bench --device gpu9 2>&1 | sed 's/; this machine has .*//'"
sh -c 'tersegrad bench --device gpu9 2>/dev/null'; echo "-> $?"
try tersegrad bench --codec qsgd --codec qsgdd
try tersegrad codecs extra
ls
