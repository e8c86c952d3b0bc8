#!/usr/bin/env bash
# VGG-19 on CIFAR-100 with SparDL, as published: batch 16 a worker, lr 0.1, 161 epochs.
#
#   examples/vgg19_spardl.sh --data-dir data                       # 6 workers as threads of this process
#   LAUNCH="mpiexec -n 6 -host node0:3,node1:3" examples/vgg19_spardl.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-6}")
[ -z "${LAUNCH:-}" ] || workers=()
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn vgg19 --dataset cifar100 --max-epochs 161 --batch-size 16 --lr 0.1 \
  --momentum 0.9 --sparse-momentum 0.9 --weight-decay 0.0001 --lr-schedule spardl \
  --compression --compressor spardl --density 0.01 \
  "$@"
