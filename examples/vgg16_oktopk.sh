#!/usr/bin/env bash
# VGG-16 on CIFAR-10 with Ok-Topk, as published: 16 workers, batch 16, lr 0.1, density 0.02, the whole gradient in the first 512
# steps: 2.6256 epochs of the 195 steps that 16 workers make of one.
# The published program puts momentum 0.9 behind the reduction, and so does this script. RULE=paper is Algorithm 2 of the paper: the
# learning rate inside the residual and no momentum.
#
#   examples/vgg16_oktopk.sh --data-dir data                       # 16 workers as threads of this process
#   LAUNCH="mpiexec -n 16 -host node0:8,node1:8" examples/vgg16_oktopk.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-16}")
[ -z "${LAUNCH:-}" ] || workers=()
rule=(--momentum 0.9 --sparse-momentum 0.9)
[ "${RULE:-program}" != paper ] || rule=(--optimiser ok-topk --momentum 0)
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn vgg16 --dataset cifar10 --max-epochs 160 --batch-size 16 --lr 0.1 "${rule[@]}" \
  --compression --compressor ok-topk --set ok-topk.preset=vgg --density 0.02 --warmup-epochs 2.6256 \
  "$@"
