# Predictions for a million ranks take less than half a second. The limit is for processor time, because a busy machine
# takes longer by the clock, and forty times as much. Looking at all hosts for each rank took 154 seconds.
. "$TOOLS/lib.sh"
for model in gpt2 resnet152; do
    for per_node in 1 8; do
        (
            ulimit -t 20
            tersegrad plan --model $model --world 1000000 --per-node $per_node --json >out.json
        )
        echo "$model, $per_node to a host -> $?"
    done
done
