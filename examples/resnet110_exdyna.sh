#!/usr/bin/env bash
# A ResNet on CIFAR-10 with ExDyna, as published: batch 32 a worker, lr 0.1 (32/128) P, 200 epochs, Nesterov 0.9, density 0.001.
# The lr below is that of P = 16, to which it rises from 0.1: give --lr with another P.
#
#   examples/resnet110_exdyna.sh --data-dir data                       # 16 workers as threads of this process
#   LAUNCH="mpiexec -n 16 -host node0:8,node1:8" examples/resnet110_exdyna.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-16}")
[ -z "${LAUNCH:-}" ] || workers=()
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn resnet110 --dataset cifar10 --max-epochs 200 --batch-size 32 --lr 0.4 --lr-schedule exdyna \
  --momentum 0.9 --sparse-momentum 0.9 --nesterov --weight-decay 0.0001 \
  --compression --compressor exdyna --density 0.001 \
  "$@"
