#!/usr/bin/env bash
# Builds both probes and the hour and gathers them in a folder that can be carried to a bare GPU machine (x86-64, glibc
# 2.36 or younger, a python3 with torch 2.11.0+cu130). There: FOLDER/hour.sh OUT first, then FOLDER/hour.sh OUT second.
#
#   bench/gpu_hour/bundle.sh FOLDER [BUILD]
#     BUILD: a build folder with VEDETTE_TORCH and VEDETTE_BENCH on; default build/release
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${1:?the folder to fill}
build=${2:-build/release}

bench/gpu_probe/bundle.sh "$folder" "$build"
cmake --build "$build" --target gpu_hour -- --quiet
cp "$build/bench/gpu_hour" bench/gpu_hour/hour.sh bench/gpu_hour/figures.py "$folder/"
if [ -f "$build/bench/libgpu_hour_cuda.so" ]; then
  cp "$build/bench/libgpu_hour_cuda.so" "$folder/"
else
  echo "bundle: no CUDA headers beside libtorch: steps 2 to 4 will be refused" >&2
fi
strip --strip-unneeded "$folder/gpu_hour" "$folder"/*.so 2>/dev/null || true
du -sh "$folder" | sed 's/^/bundle: /'
