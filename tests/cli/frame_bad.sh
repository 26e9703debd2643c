# Damaged frames are refused, nothing is written, and inspect says what is wrong.
. "$TOOLS/lib.sh"
sample in.npy 4096
tersegrad encode -f qsgd:levels=7 in.npy good.tg >/dev/null
bad() {
    echo "# $1"
    tersegrad decode -f bad.tg out.npy
    echo "-> $?"
    tersegrad inspect --json bad.tg | json '(j["count"], j["checksum_ok"], j["verdict"])'
}
echo "# missing"
try tersegrad decode -f bad.tg out.npy
try tersegrad inspect bad.tg
echo "# no frame at all"
echo "something else" >bad.tg
try tersegrad decode -f bad.tg out.npy
try tersegrad inspect bad.tg
: >bad.tg
try tersegrad decode -f bad.tg out.npy
try tersegrad inspect bad.tg
cp good.tg bad.tg && npy patch bad.tg -1 5a
bad "a byte of the payload"
cp good.tg bad.tg && npy patch bad.tg 40 01
bad "a byte of the header"
cp good.tg bad.tg && npy cut bad.tg 100
bad "cut in the payload"
cp good.tg bad.tg && npy cut bad.tg 20
bad "cut in the header"
cp good.tg bad.tg && printf x >>bad.tg
bad "a byte too many"
cp good.tg bad.tg && npy patch bad.tg 4 63
bad "version 99"
cp good.tg bad.tg && npy patch bad.tg 4 00
bad "version 0"
cp good.tg bad.tg && npy patch bad.tg 8 ff
bad "an unknown codec"
tersegrad encode -f --no-checksum qsgd:levels=7 in.npy bad.tg >/dev/null
tersegrad inspect --json bad.tg | json '(j["checksum_ok"], j["verdict"])'
npy patch bad.tg -1 ff
bad "no checksum, a negative scale"
echo "# shown"
cp good.tg bad.tg && npy patch bad.tg -1 5a
try tersegrad inspect bad.tg
ls
