#!/usr/bin/env bash
# Four workers, each with a link of 1 Gbit/s, train the same model with dense gradients, QSGD, ECQ-SGD, Top-k and Gaussian-k: scripts/demo.sh COMMAND [DATA]
#
# DATA is anything that `tersegrad train --data` takes, MNIST's directory for example; without it the data are synthetic.
set -eu
cd "$(dirname "$0")/.."
command=$1
data=${2:-synthetic:rows=40000,features=200,classes=10,clusters=6,spread=6}
mkdir -p build/demo
arguments=(train --data "$data" --model "mlp:256,128" --workers 4 --batch 32 --lr 0.2 --schedule cosine --steps 800 --link "1gbit,50us"
    --codec none --feedback none
    --codec "qsgd:levels=4,norm=l2,bucket=512" --feedback none
    --codec "qsgd:levels=4,norm=l2,bucket=512" --feedback "ecq:alpha=0.2,beta=0.9"
    --codec topk:density=0.01 --feedback ef
    --codec gaussiank:density=0.01 --feedback ef
    --report build/demo/report.html)
printf '$ tersegrad %s\n\n' "${arguments[*]}" | fold -s -w 120
"$command" "${arguments[@]}"
