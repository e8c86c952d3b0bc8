#!/usr/bin/env bash
# ResNet-50 on ImageNet with SparDL: the task of its second version; the schedule is the usual one of 90 epochs.
#
#   examples/resnet50_spardl.sh --data-dir data                       # 8 workers as threads of this process
#   LAUNCH="mpiexec -n 8 -host node0:4,node1:4" examples/resnet50_spardl.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-8}")
[ -z "${LAUNCH:-}" ] || workers=()
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn resnet50 --dataset imagenet --max-epochs 90 --batch-size 32 --lr 0.1 \
  --momentum 0.9 --sparse-momentum 0.9 --weight-decay 0.0001 --lr-warmup-epochs 5 --lr-steps 30,60,80 \
  --compression --compressor spardl --density 0.01 \
  "$@"
