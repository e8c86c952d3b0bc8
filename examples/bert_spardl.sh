#!/usr/bin/env bash
# BERT (masked words) with SparDL, density 0.01. The paper trains on Wikipedia with Adam; here on WikiText with SGD, and batch, length and
# learning rate are those of bert_oktopk.sh.
#
#   examples/bert_spardl.sh --data-dir data                       # 8 workers as threads of this process
#   LAUNCH="mpiexec -n 8 -host node0:4,node1:4" examples/bert_spardl.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-8}")
[ -z "${LAUNCH:-}" ] || workers=()
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn bert-base --dataset wikitext --length 128 --max-epochs 10 --batch-size 8 --lr 0.01 --clip 1 \
  --momentum 0.9 --sparse-momentum 0.9 \
  --compression --compressor spardl --density 0.01 \
  "$@"
