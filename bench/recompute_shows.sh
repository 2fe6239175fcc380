#!/usr/bin/env bash
# Does recomputation in live runs give what it should? All of it in one go, on a machine that does nothing else.
#
#   bench/recompute_shows.sh [--few] [FOLDER]
#
#   FOLDER  where the results go (default build/recompute_shows); the disk below it is the slow tier
#   --few   few steps of small shapes: shows that the commands run, and nothing else
#
# 1. Gain: ResNet-18 and BERT at 25 %, the slow tier bounded to 0.2 and 0.5 GB/s and at the disk's own speed, without
#    and with recomputation in turns (recompute.json, for bench/results). Wanted: 5 % faster where it is bounded, never
#    slower by more than 1 % where it is not.
# 2. The simulator beside live runs of four models that may recompute, at 0.5 GB/s (sim_vs_live.txt). Wanted: within
#    10 %.
# 3. A decoder and a ViT on the simulated GPU at 50 %, without and with recomputation in turns (gpu_*.json). Its link is
#    as slow against this machine's matrix product as PCIe 5 against an H200's: 50 GB/s to 400 TFLOP/s. Wanted: 1.3 x.
#    Built where libtorch has CUDA; else a sentence says that it is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
few=
if [ "${1:-}" = --few ]; then few=yes; shift; fi
folder=$(mkdir -p "${1:-build/recompute_shows}" && realpath "${1:-build/recompute_shows}")
build=${VEDETTE_BUILD:-build/release} python=${PYTHON:-python3}

gains=() beside=() cells=(--rounds 3) gaining=resnet18:25,bert:25:4:60:16 models=mlp:50,resnet18:25,gpt:25:4
# Steps of BERT are of four lengths; of each the first eight by a plan try plans.
lengths=(--models bert:50:4 --rounds 2 --steps 72 --counted 32)
if [ -n "$few" ]; then
  gains=(--small --rounds 1 --steps 7 --counted 2 --chunk 64KiB)
  beside=(--rounds 1 --steps 6)
  cells=(--rounds 1 --steps 1 --warm-up 3)
  models=mlp:50 lengths=() gaining=resnet18:25,bert:25
fi

"$python" bench/recompute.py --models "$gaining" --speeds 0.2,0.5,0 --slow "nvme:$folder" \
  --train "$build/examples/train" --results "$folder/recompute.json" "${gains[@]}" | tee "$folder/recompute.txt"
"$python" bench/sim_vs_live.py --recompute --speed 0.5 --models "$models" --slow "$folder" \
  --train "$build/examples/train" --vedette "$build/vedette" "${beside[@]}" | tee "$folder/sim_vs_live.txt"
if [ ${#lengths[@]} -gt 0 ]; then
  "$python" bench/sim_vs_live.py --recompute --speed 0.5 "${lengths[@]}" --plain-steps 24 --slow "$folder" \
    --train "$build/examples/train" --vedette "$build/vedette" | tee -a "$folder/sim_vs_live.txt"
fi

if [ ! -e "$build/src/simulated_gpu/lib/preload" ] || [ ! -x "$build/bench/gpu_table" ]; then
  echo "recompute_shows: $build has no simulated GPU (targets simulated_gpu, gpu_table): its part was not run"
  exit 0
fi
# Matrix products of 1024: 2 * 1024^3 operations each, the best of ten. torch for CUDA loads beside the stand-ins alone.
gbs=$(SIMULATED_GPU="races=0" scripts/with_simulated_gpu .venv/bin/python - <<'PYTHON'
import time
import torch
a = torch.randn(1024, 1024)
best = min((lambda begin: (a @ a, time.perf_counter() - begin)[1])(time.perf_counter()) for _ in range(10))
print(f"{2 * 1024**3 / best / 1e9 * 50 / 400e3:.5f}")
PYTHON
)
echo "simulated GPU: a link of $gbs GB/s"
for cell in decoder:8 vit:32; do
  model=${cell%:*} batch=${cell#*:}
  SIMULATED_GPU="memory_mib=2048 races=0 gbs=$gbs" scripts/with_simulated_gpu "$build/bench/gpu_table" --small \
    --model "$model" --batch "$batch" --only plain --only 'guard, 50' --only 'again, 50' \
    --json "$folder/gpu_$model.json" "${cells[@]}" | tee "$folder/gpu_$model.txt"
done
