# What `tersegrad train` refuses, in one sentence.
. "$TOOLS/lib.sh"
try tersegrad train --workers 0
try tersegrad train --lr 0
try tersegrad train --momentum 1
try tersegrad train --schedule exponential
try tersegrad train --algorithm adam
try tersegrad train --reduce ring
try tersegrad train --nonfinite zero
try tersegrad train --steps 5 --epochs 2
try tersegrad train --codec qsgdd
try tersegrad train --codec qsgd --feedback eff
for feedback in ecq:alpha= ecq:alpha=0.1.2 ecq:alpha=2 ecq:alpha dgc:momentum=1; do
    try tersegrad train --codec qsgd --feedback "$feedback"
done
try tersegrad train --codec none --codec qsgd --codec topk --feedback ef --feedback none
try tersegrad train --model resnet
try tersegrad train --model mlp:0
try tersegrad train --model mlp:128,
try tersegrad train --data synthetic:colour=3
try tersegrad train --data synthetic:rows=none
try tersegrad train --density-schedule 0:2
try tersegrad train --density-schedule 10:0.1,5:0.2
try tersegrad train --density-schedule dgc
try tersegrad train --density-schedule 99999999999999999999:0.1
try tersegrad train --density-schedule 0:1e-10
for link in '' 1 0gbit -1gbit infgbit nangbit 1e3gbit 1gbyte 1..5gbit 10bit 99999tbit gbit '1gbit,' 1gbit,50 1gbit,-1us 1gbit,2000s ,50us 1gbit,0us 100mbit,0.0s; do
    try tersegrad train --link "$link"
done
# Where OpenMPI is here, the ranks say together whose fault it is.
try_line "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 tersegrad train --link 1gbit 2>&1 | head -n 1 | sed 's/: rank 0:/:/'"
try_line "tersegrad train --device gpu9 2>&1 | sed 's/; this machine has .*//'"
echo "# files that would take each other's place, and no files"
try tersegrad train --log a --report a
echo mine >b
try tersegrad train --checkpoint b --report ./b
try tersegrad train --resume b --log b
cat b
try tersegrad train --report - --json
try tersegrad train --checkpoint ''
tersegrad train --data syn-256 --steps 2 --codec none --log /dev/null --report /dev/null >/dev/null 2>&1 && echo "nowhere twice: well"
echo "# what shows once the data are there"
try tersegrad train --data missing
mkdir empty
try tersegrad train --data empty
try tersegrad train --data syn-256 --model softmax
try tersegrad train --data syn-256 --model logistic
try tersegrad train --data synthetic:classes=3 --model logistic
try tersegrad train --data synthetic:rows=3 --workers 4 --steps 1
try tersegrad train --data syn-256 --codec qsgd --feedback dgc --steps 1
echo "# feedback that would diverge"
tersegrad train --data syn-256 --codec qsgd:levels=4,norm=l2,bucket=0 --feedback ef --steps 1 2>&1 | cut -c 1-60
tersegrad train --data syn-256 --codec qsgd:levels=4,norm=l2,bucket=0 --feedback ef --steps 400 --insist --json 2>/dev/null |
    json 'j["runs"][0]["distance_to_optimum"] > 10'
try tersegrad train --group 0
try tersegrad train --group many
try tersegrad train --group auto
echo "# a clip and hosts with several ranks: refused before the log is touched"
echo mine >old.jsonl
try tersegrad train --group 2 --log old.jsonl --codec none --codec topk --feedback none --feedback dgc:momentum=0.5,clip=1
cat old.jsonl
tersegrad train --data syn-256 --steps 2 --group 2 --codec topk --feedback dgc:clip=0 >/dev/null 2>&1 && echo "no clip: well"
tersegrad train --data syn-256 --steps 2 --group 1 --codec topk --feedback dgc:clip=1 >/dev/null 2>&1 && echo "no hosts: well"
