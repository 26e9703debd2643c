#!/usr/bin/env bash
# Figure 3 of the ECQ-SGD paper: Syn-20K, 1000 iterations, time by stage and test loss for dense SGD, QSGD and ECQ-SGD at several s.
# usage: bench/figure3.sh [COMMAND] [OPTION]...   options go to `tersegrad train`; the page is build/figure3.html
#
# The paper's cluster had 4 workers, a network between them, and L2 norms. Scales are taken over buckets of 512: over the whole vector of
# 20,000 the variance of s = 4 is 35 times the gradient's square, and no step size that moves would survive it. alpha is such that
# lambda stays below 1 for each s: 0.2 does at s = 4.
set -eu
cd "$(dirname "$0")/.."
command=${1:-build/tersegrad}
[ $# -eq 0 ] || shift
mkdir -p build
arguments=(train --data syn-20k --workers 4 --batch 64 --lr 0.004 --steps 1000 --report build/figure3.html --codec none --feedback none)
for s in 4 16 64; do
    arguments+=(--codec "qsgd:levels=$s,norm=l2,bucket=512" --feedback none)
    arguments+=(--codec "qsgd:levels=$s,norm=l2,bucket=512" --feedback "ecq:alpha=0.2,beta=0.9")
done
"$command" "${arguments[@]}" "$@"
