#!/usr/bin/env bash
# Runs the probes of this folder on a GPU machine: no compiler, no network, no root needed; under ten minutes.
#
#   run.sh OUT      writes OUT/gpu_probe.json, OUT/gpu_probe_torch.json and their tables as .txt
#
# libtorch and CUPTI are those of the machine's python3, where it has torch. SLOW names the directory whose disk is
# measured.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?the folder for the results}
commit=$(cat "$here/commit" 2>/dev/null || echo unknown)
mkdir -p "$out"
torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null)
libraries=$here/lib
if [ -n "$torch" ]; then libraries=$libraries:$torch/lib:$(dirname "$torch")/nvidia/cu13/lib; fi
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

{ date -u +%FT%TZ; uname -a; nvidia-smi; nvcc --version; } >"$out/machine.txt" 2>&1
timeout -k 5 285 "$here/gpu_probe" --json "$out/gpu_probe.json" --budget 270 --slow "${SLOW:-/tmp}" --commit "$commit" |
  tee "$out/gpu_probe.txt"
if [ -z "$torch" ]; then
  echo "python3 has no torch here: point 5 is not measured" | tee "$out/gpu_probe_torch.txt"
else
  timeout -k 5 285 "$here/gpu_probe_torch" --json "$out/gpu_probe_torch.json" --budget 270 --cell-limit 100 \
    --commit "$commit" |
    tee "$out/gpu_probe_torch.txt"
fi
ls -l "$out"
