#!/usr/bin/env bash
# `tersegrad train` under mpirun, with every MPI that is here: the weights of threads to the bit, errors on one rank's stderr, and a rank
# that is killed takes the job with it. usage: tests/train_mpi.sh COMMAND
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
. tests/ranks.sh
command=$PWD/${1:-build/tersegrad}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
ranks=3
small=(--data "synthetic:rows=2000,test=200,features=20,classes=4" --model "mlp:16" --steps 60 --momentum 0.9)
codecs=(--codec none --codec qsgd:levels=7 --codec topk:density=0.05 --codec gaussiank:density=0.05)

# run_with MPI ARGUMENT...: that mpirun, as root and on few cores too
run_with() {
    local mpi=$1 options=()
    shift
    if [ "$mpi" = openmpi ]; then
        options=(--oversubscribe)
        [ "$(id -u)" -ne 0 ] || options+=(--allow-run-as-root)
    fi
    timeout "$patience" "mpirun.$mpi" "${options[@]}" "$@"
}
# launch MPI ARGUMENT...: all ranks alike
launch() {
    run_with "$1" -np $ranks "$command" train "${@:2}"
}
# unlike MPI ARGUMENT...: two ranks, of which the second has further arguments
unlike() {
    run_with "$1" -np 1 "$command" train "${small[@]}" : -np 1 "$command" train "${small[@]}" "${@:2}"
}
# other_launcher MPI: what the other MPI's launcher would leave in the environment, so that the other module is taken
other_launcher() {
    if [ "$1" = openmpi ]; then
        run_with openmpi -np $ranks env -u OMPI_COMM_WORLD_SIZE PMI_SIZE=$ranks "$command" train "${small[@]}"
    else
        run_with mpich -np $ranks env OMPI_COMM_WORLD_SIZE=$ranks "$command" train "${small[@]}"
    fi
}
# on_hosts MPI ARGUMENT...: four ranks, of which two and two see one host name
on_hosts() {
    # shellcheck disable=SC2016 # for the shell of the rank
    run_with "$1" -np 4 unshare -u sh -c 'hostname "h$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} / 2))" && exec "$@"' sh "$command" train \
        "${small[@]}" "${@:2}"
}
# levels MPI: two levels are taken where hosts have several ranks, unless something is asked for that does not go with them
levels() {
    local mpi=$1 options
    if ! unshare -u sh -c 'hostname h0' 2>/dev/null; then
        skip "$mpi, two levels: host names cannot be changed here"
        return
    fi
    expect "$mpi, two levels: the weights of threads in groups" test "$(on_hosts "$mpi" "${codecs[@]}" --json 2>err | hashes)" = "$grouped"
    expect "$mpi, two levels: one line says so" test "$(grep -c '^two levels: 2 hosts of 2 ranks$' err)" -eq 1
    for options in "--group 1" "--reduce shard" "--bypass auto" "--codec topk --feedback dgc:momentum=0.5,clip=1"; do
        # shellcheck disable=SC2086 # several words
        on_hosts "$mpi" $options --json >out 2>err
        expect "$mpi, one level: $options" test $? -eq 0 -a "$(grep -c '"weights_hash"' out)" -gt 0 -a "$(grep -c '^two levels' err)" -eq 0
    done
    on_hosts "$mpi" "${codecs[@]}" --resume four.ckpt --json >out 2>err
    expect "$mpi, two levels: a run of one level goes on" test $? -eq 0 -a "$(grep -c '^two levels' err)" -eq 1 -a "$(hashes <out | wc -l)" -eq 4
    on_hosts "$mpi" "${codecs[@]}" --steps 25 --checkpoint $mpi-levels.ckpt >out 2>err
    expect "$mpi, two levels: saved, and goes on to the bit" test "$(on_hosts "$mpi" "${codecs[@]}" --resume $mpi-levels.ckpt --json 2>err | hashes)" = \
        "$grouped"
    expect "$mpi, two levels: threads go on, in one level" "$command" train "${small[@]}" "${codecs[@]}" --workers 4 --resume $mpi-levels.ckpt
}
# silent MPI: three ranks, of which the last never answers, because its data are a pipe that nobody writes to
silent() {
    run_with "$1" -np 2 "$command" train --data here.txt --timeout 2 : -np 1 "$command" train --data pipe --timeout 2 >out 2>err
    local status=$?
    [ $status -ne 0 ] && [ $status -ne 124 ]
}
hashes() {
    sed -n 's/.*"weights_hash": "\(.*\)".*/\1/p'
}

# complains MPI NAME PATTERN [unlike] ARGUMENT...: fails, and one rank alone says why
complains() {
    local mpi=$1 name=$2 pattern=$3 how=launch speakers
    shift 3
    case $1 in unlike | other_launcher) how=$1 && shift ;; esac
    $how "$mpi" "$@" >out 2>err
    status=$?
    if [ $status -eq 0 ]; then
        fail "$mpi, $name: it went well"
    elif speakers=$(grep -c '^tersegrad train:' err) && [ "$how" = other_launcher ]; then # each is alone; the launcher may end some
        expect "$mpi, $name: whoever is not ended before says why" test "$(grep -c "$pattern" err)" -eq "$speakers"
    elif [ "$speakers" -ne 1 ]; then
        fail "$mpi, $name: not one rank that speaks"
        cat err
    else
        expect "$mpi, $name: one rank says why" grep -q "$pattern" err
    fi
}

# misused MPI NAME PATTERN [unlike] ARGUMENT...: the same, and the exit status is that of wrong usage
misused() {
    complains "$@"
    expect "$1, $2: exit status 2" test $status -eq 2
}

# dies MPI: the launcher ends the job, and reports it in its own words
dies() {
    local mpi=$1 log="$work/$1.jsonl" victim start status
    launch "$mpi" "${small[@]}" --steps 100000000 --log "$log" >out 2>err &
    local launched=$!
    begun "$log" "$launched"
    victim=$(process_of "$log" 1)
    expect "$mpi: there is a rank 1 to be killed" test -n "$victim"
    kill -KILL "$victim"
    start=$SECONDS
    wait $launched
    status=$?
    expect "$mpi: the job of a killed rank fails ($((SECONDS - start)) s)" test $status -ne 0 -a $status -ne 124
    expect "$mpi: the launcher says so" grep -qE "rank 1|BAD TERMINATION" out err
}

local_hashes=$("$command" train "${small[@]}" "${codecs[@]}" --workers $ranks --json 2>/dev/null | hashes)
sharded=$("$command" train "${small[@]}" "${codecs[@]}" --workers $ranks --reduce shard --json 2>/dev/null | hashes)
"$command" train "${small[@]}" "${codecs[@]}" --workers $ranks --steps 25 --checkpoint threads.ckpt >/dev/null 2>&1
"$command" train "${small[@]}" "${codecs[@]}" --workers 4 --steps 25 --checkpoint four.ckpt >/dev/null 2>&1
grouped=$("$command" train "${small[@]}" "${codecs[@]}" --workers 4 --group 2 --json 2>/dev/null | hashes)
expect "threads" test "$(wc -w <<<"$local_hashes")" -eq 4
printf '1 1:2\n1 x:1\n' >bad.txt
mkdir there
printf '%s 1:1\n' 1 2 1 2 1 2 >here.txt
head -n 5 here.txt >there/here.txt
sed '$s/1:1/1:2/' here.txt >there/like.txt
cp here.txt like.txt
mkfifo pipe
printf '%s 1:1 2:1\n' 3e38 1 2 3 4 5 | sed '1s/1:1/1:100/' >overflow.txt

for mpi in openmpi mpich; do
    if ! command -v mpirun.$mpi >/dev/null || [ ! -e "$(dirname "$command")/mpi-$mpi.so" ]; then
        skip "mpirun.$mpi not installed"
        continue
    fi
    expect "$mpi: the weights of threads" test "$(launch $mpi "${small[@]}" "${codecs[@]}" --json 2>err | hashes)" = "$local_hashes"
    expect "$mpi: on the definition's kernels" test "$(launch $mpi "${small[@]}" "${codecs[@]}" --device cpu/scalar --json 2>err | hashes)" = \
        "$local_hashes"
    expect "$mpi: with shards" test "$(launch $mpi "${small[@]}" "${codecs[@]}" --reduce shard --json 2>err | hashes)" = "$sharded"
    expect "$mpi: goes on from a checkpoint of threads" test \
        "$(launch $mpi "${small[@]}" "${codecs[@]}" --resume threads.ckpt --json 2>err | hashes)" = "$local_hashes"
    launch $mpi "${small[@]}" "${codecs[@]}" --steps 31 --checkpoint $mpi.ckpt >out 2>err
    expect "$mpi: threads go on from its checkpoint" test \
        "$("$command" train "${small[@]}" "${codecs[@]}" --workers $ranks --resume $mpi.ckpt --json 2>err | hashes)" = "$local_hashes"
    launch $mpi "${small[@]}" --json >out 2>err
    expect "$mpi: says so" grep -q '"transport": "mpi"' out
    misused $mpi "wrong usage" "no option '--bogus'" --bogus
    complains $mpi "no such data" "cannot open the data 'missing'" --data missing
    complains $mpi "a bad line" "bad.txt:2" --data bad.txt
    complains $mpi "a full disk" "No space left" "${small[@]}" --checkpoint /dev/full
    complains $mpi "a log that cannot be" "cannot write the log '/nowhere/l'" "${small[@]}" --log /nowhere/l
    complains $mpi "a report that cannot be" "cannot write '/nowhere/r'" "${small[@]}" --report /nowhere/r
    complains $mpi "no such checkpoint" "cannot open 'missing.ckpt'" "${small[@]}" --resume missing.ckpt
    misused $mpi "unstable feedback" "would diverge" --data syn-256 --codec qsgd:levels=1,norm=l2,bucket=0 --feedback ef
    misused $mpi "a log of bypass that does not fit" "change at step 500, but the last of 21 steps" --epochs 1 --bypass replay:500 \
        --data "synthetic:rows=2000,features=20" --log $mpi-refused.jsonl
    misused $mpi "a checkpoint of another seed" "was made with --seed 1, not 2" "${small[@]}" "${codecs[@]}" --seed 2 --resume threads.ckpt \
        --log $mpi-refused.jsonl
    expect "$mpi: what is refused leaves no log" test ! -e $mpi-refused.jsonl
    misused $mpi "bypass, and ranks that share a host" "group auto finds ranks 0 and 1 on one" "${small[@]}" --group auto --bypass auto
    complains $mpi "a gradient that is not finite" "tensor 'weight'" --data overflow.txt --model linear --batch 2 --codec none
    complains $mpi "a full gradient that is not finite" "full gradient of QSVRG" --data overflow.txt --model linear --batch 2 --codec none \
        --algorithm qsvrg --nonfinite skip
    misused $mpi "a clip, and ranks that share a host" "group auto finds ranks 0 and 1 on one, which compresses their sum" "${small[@]}" --group auto \
        --codec topk --feedback dgc:clip=1
    misused $mpi "ranks of other codecs" "rank 0 has --codec none, and rank 1 has --codec qsgd" unlike --codec qsgd --codec qsgd --codec qsgd
    misused $mpi "a rank of wrong usage" "rank 1: unknown codec 'junk'" unlike --codec junk
    complains $mpi "a rank without the device" "rank 1: unknown device 'gpu9'" unlike --device gpu9
    run_with $mpi -np 1 "$command" train --data here.txt : -np 1 bash -c 'cd there && exec "$@"' - "$command" train --data here.txt >out 2>err
    expect "$mpi: ranks whose data differ in shape" grep -q \
        "rank 0 has --data of 6 rows.* and rank 1 has --data of 5 rows.*; give all ranks the same data" err
    run_with $mpi -np 1 "$command" train --data like.txt : -np 1 bash -c 'cd there && exec "$@"' - "$command" train --data like.txt >out 2>err
    expect "$mpi: ranks whose data differ in content" grep -q "rank 0 has --data of content .*, and rank 1 has --data of content " err
    for _ in 1 2 3 4 5; do # ranks that end at once, of whatever program, may find MPICH's launcher unprepared: it dies of a broken pipe
        launch $mpi --help >out 2>err
        [ $? -eq 141 ] || break
    done
    expect "$mpi: help comes once" test "$(grep -c '^usage:' out)" -eq 1
    misused $mpi "ranks of other steps" "rank 0 has --steps 60, and rank 1 has --steps 70; give all ranks the same options" unlike --steps 70
    misused $mpi "ranks of other groups" "rank 0 has --group none, and rank 1 has --group 2; give all" unlike --group 2
    misused $mpi "ranks of other bypass" "rank 0 has --bypass none, and rank 1 has --bypass auto; give all" unlike --bypass auto
    levels $mpi
    complains $mpi "a launcher of another MPI" "the launcher started 3 ranks, and MPI .* found 1" other_launcher
    dies $mpi
    expect "$mpi: a rank that does not answer ends the job" silent $mpi
    expect "$mpi: and is named" grep -qE '^tersegrad train: rank [01]: ranks? .*2 did not answer rank [01] within 2 s$' err
done
finish
