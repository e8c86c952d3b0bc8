#!/usr/bin/env bash
# LSTM language model with SparDL, density 0.01. The paper trains on the Penn Treebank, whose files are not free: give any text in words with
# --dataset text, or WikiText as here. Its batch and learning rate could not be found; these are ours.
#
#   examples/lstm_spardl.sh --data-dir data                       # 8 workers as threads of this process
#   LAUNCH="mpiexec -n 8 -host node0:4,node1:4" examples/lstm_spardl.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-8}")
[ -z "${LAUNCH:-}" ] || workers=()
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn lstm --dataset wikitext --max-epochs 40 --batch-size 8 --lr 1 --lr-steps 20,30 --momentum 0 --clip 0.25 \
  --compression --compressor spardl --density 0.01 \
  "$@"
