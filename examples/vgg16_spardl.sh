#!/usr/bin/env bash
# VGG-16 on CIFAR-10 with SparDL, as published: batch 16 a worker, lr 0.1, 121 epochs, 6 workers.
#
#   examples/vgg16_spardl.sh --data-dir data                       # 6 workers as threads of this process
#   LAUNCH="mpiexec -n 6 -host node0:3,node1:3" examples/vgg16_spardl.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-6}")
[ -z "${LAUNCH:-}" ] || workers=()
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn vgg16 --dataset cifar10 --max-epochs 121 --batch-size 16 --lr 0.1 \
  --momentum 0.9 --sparse-momentum 0.9 --weight-decay 0.0001 --lr-schedule spardl \
  --compression --compressor spardl --density 0.01 \
  "$@"
