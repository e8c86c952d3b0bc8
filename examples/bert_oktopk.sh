#!/usr/bin/env bash
# BERT (masked words) with Ok-Topk's BERT preset: 32 workers, batch 8, sequences of 128, density 0.01. The paper trains on Wikipedia
# with Adam; here WikiText and SGD with momentum, so the learning rate is ours.
#
#   examples/bert_oktopk.sh --data-dir data                       # 32 workers as threads of this process
#   LAUNCH="mpiexec -n 32 -host node0:16,node1:16" examples/bert_oktopk.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-32}")
[ -z "${LAUNCH:-}" ] || workers=()
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn bert-base --dataset wikitext --length 128 --max-epochs 10 --batch-size 8 --lr 0.01 --clip 1 \
  --momentum 0.9 --sparse-momentum 0.9 \
  --compression --compressor ok-topk --set ok-topk.preset=bert --density 0.01 \
  "$@"
