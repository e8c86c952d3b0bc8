#!/usr/bin/env bash
# LSTM language model with Ok-Topk's LSTM preset: 32 workers, batch 2, density 0.02. The paper trains on speech
# (AN4), which is not offered, with lr 0.001; lr and clipping here are for words. Its first 128 steps, with the whole gradient, are
# left out: what part of an epoch they are depends on the text. --warmup-epochs E adds them.
# The published program puts momentum 0.9 behind the reduction, and so does this script. RULE=paper is Algorithm 2 of the paper: the
# learning rate inside the residual and no momentum.
#
#   examples/lstm_oktopk.sh --data-dir data                       # 32 workers as threads of this process
#   LAUNCH="mpiexec -n 32 -host node0:16,node1:16" examples/lstm_oktopk.sh --data-dir data
#
# More options go to spardl train and win over those below. SPARDL names the command (default: spardl).
set -euo pipefail
workers=(--nworkers "${NWORKERS:-32}")
[ -z "${LAUNCH:-}" ] || workers=()
rule=(--momentum 0.9 --sparse-momentum 0.9)
[ "${RULE:-program}" != paper ] || rule=(--optimiser ok-topk --momentum 0)
exec ${LAUNCH:-} "${SPARDL:-spardl}" train "${workers[@]}" \
  --dnn lstm --dataset wikitext --max-epochs 40 --batch-size 2 --lr 1 --clip 0.25 "${rule[@]}" \
  --compression --compressor ok-topk --set ok-topk.preset=lstm --density 0.02 \
  "$@"
