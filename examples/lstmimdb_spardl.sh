#!/usr/bin/env bash
# LSTM on IMDB with SparDL, as published: batch 1 a worker, lr 0.3, 31 epochs, momentum 0.9, weight
# decay 0.0001, 50,001 words, the first 500 tokens.
#
#   examples/lstmimdb_spardl.sh --data-dir data                       # 6 workers as threads of this process
#   LAUNCH="mpiexec -n 6 -host node0:3,node1:3" examples/lstmimdb_spardl.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-6}")
[ -z "${LAUNCH:-}" ] || workers=()
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn lstmimdb --dataset imdb --max-epochs 31 --batch-size 1 --lr 0.3 \
  --vocabulary 50001 --length 500 --momentum 0.9 --sparse-momentum 0.9 --weight-decay 0.0001 --lr-schedule lstmimdb \
  --compression --compressor spardl --density 0.01 \
  "$@"
