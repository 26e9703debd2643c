# What is mistyped by a slip or two gets a suggestion: commands, options, codecs and their parameters; anything else does not.
. "$TOOLS/lib.sh"
for command in tarin bnech encoed deocde isnpect codec TRAIN frob; do
    try tersegrad $command
done
for codec in qsdg QSGD Top-K top_k gausiank onebti terngrda zip kopt qsgd:levles=7 topk:desnity=0.1 topk:frob=1 qsgd:levels=0; do
    try tersegrad encode "$codec" in.npy
done
try tersegrad bench --codec qsdg
try tersegrad train --codec tokp
try tersegrad train --wokrers 3
try tersegrad train --resmue x
try tersegrad bench --wdie
try tersegrad decode --froce in.tg
try tersegrad decode -codec
