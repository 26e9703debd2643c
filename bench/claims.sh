#!/usr/bin/env bash
# The figures of docs/results.md: bench/claims.sh COMMAND [MNIST-DIRECTORY]
#
# Prints, for Syn-256, 512 and 1024, the squared distance to the optimum, mean over three seeds, for dense SGD, QSGD and ECQ-SGD; and
# with MNIST's directory the tables of sparsifiers and quantisers; last the sweep of ECQ-SGD's parameters. Six minutes
# on two quiet cores.
set -eu
cd "$(dirname "$0")/.."
command=$1
mnist=${2:-}
qsgd=qsgd:levels=4,norm=l2,bucket=0

# distances FEATURES ALPHA BETA
distances() {
    for seed in 1 2 3; do
        "$command" train --data "syn-$1" --workers 4 --batch 64 --lr 0.02 --steps 1500 --seed $seed --json \
            --codec none --feedback none --codec $qsgd --feedback none --insist \
            --codec $qsgd --feedback "ecq:alpha=$2,beta=$3" 2>/dev/null
    done | awk -v name="Syn-$1, alpha=$2 beta=$3" -F'[:,]' '/distance_to_optimum/ { sum[n++ % 3] += $2 }
        END { printf "%s: dense %.3e, QSGD %.3e, ECQ-SGD %.3e\n", name, sum[0] / 3, sum[1] / 3, sum[2] / 3 }'
}
distances 256 0.2 0.9
distances 512 0.2 0.99
distances 1024 0.15 0.99

if [ -n "$mnist" ]; then
    "$command" train --data "$mnist" --model mlp:256,128 --workers 4 --batch 32 --lr 0.2 --schedule step --epochs 10 \
        --codec none --feedback none --codec topk:density=0.01 --feedback ef --codec gaussiank:density=0.01 --feedback ef \
        --codec topk:density=0.001 --feedback ef --codec gaussiank:density=0.001 --feedback ef \
        --codec randk:density=0.01 --feedback none --codec randk:density=0.001 --feedback none --report build/mnist.html
    "$command" train --data "$mnist" --model mlp:256,128 --workers 4 --batch 32 --lr 0.2 --schedule step --epochs 10 \
        --codec none --feedback none --codec qsgd:levels=127,bucket=512 --feedback none \
        --codec qsgd:levels=7,bucket=512 --feedback none --codec qsgd:levels=1,bucket=128 --feedback none \
        --codec terngrad --feedback none --codec terngrad:clip=2.5 --feedback none \
        --codec onebit:bucket=512 --feedback ef --codec onebit:bucket=512 --feedback none
fi

# How much alpha and beta matter.
for alpha in 0.05 0.1 0.2 0.3 0.4; do
    for beta in 0.8 0.9 0.99 1; do
        distances 512 $alpha $beta
    done
done
