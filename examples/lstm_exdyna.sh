#!/usr/bin/env bash
# LSTM language model with ExDyna, as published: batch 32 a worker, lr from 2.5 to 2.5 (32/64) P in 5 epochs, 90 epochs, a tenth of it at 60 and
# 80, no momentum, no weight decay, density 0.001. The lr below is that of P = 16: give --lr with another P. The text is WikiText;
# clipping is ours.
#
#   examples/lstm_exdyna.sh --data-dir data                       # 16 workers as threads of this process
#   LAUNCH="mpiexec -n 16 -host node0:8,node1:8" examples/lstm_exdyna.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-16}")
[ -z "${LAUNCH:-}" ] || workers=()
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn lstm --dataset wikitext --max-epochs 90 --batch-size 32 --lr 20 --lr-warmup-epochs 5 --lr-warmup-from 2.5 --lr-steps 60,80 \
  --momentum 0 --weight-decay 0 --clip 0.25 \
  --compression --compressor exdyna --density 0.001 \
  "$@"
