#!/usr/bin/env bash
# Builds what hour.sh runs and gathers it, with the libraries that a bare machine lacks, in a folder that can be carried
# to a GPU machine. That has x86-64, glibc 2.36 or younger, and a python3 with torch 2.11.0+cu130. There, in calls of at
# most ten minutes: FOLDER/hour.sh OUT first, then tier, table, second.
#
#   bench/gpu_hour/bundle.sh FOLDER [BUILD]
#     BUILD: a build folder with VEDETTE_TORCH and VEDETTE_BENCH on; default build/release
#     BUILT=1 in the environment: takes what is built
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${1:?the folder to fill}
build=${2:-build/release}

probes=(gpu_probe gpu_probe_torch place_cost)
torch=(libgpu_probe_torch_cuda.so libgpu_table_managed.so)
if [ -z "${BUILT:-}" ]; then
  [ -f "$build/CMakeCache.txt" ] || cmake --preset release -B "$build" >/dev/null
  cmake --build "$build" --target "${probes[@]}" train gpu_table irregular vedette_cli -- --quiet
fi
mkdir -p "$folder/lib"
cp bench/gpu_hour/hour.sh bench/gpu_hour/figures.py bench/gpu_probe/run.sh bench/fsdp2_offload.py "$folder/"
cp "${probes[@]/#/$build/bench/}" "$build/bench/gpu_table" "$build/bench/irregular" "$build/examples/train" \
  "$build/vedette" "$folder/"
if [ -f "$build/src/adapter/torch/libvedette_torch_cuda.so" ]; then
  cp "${torch[@]/#/$build/bench/}" "$build/src/adapter/torch/libvedette_torch_cuda.so" "$folder/"
else
  echo "bundle: no CUDA headers beside libtorch: second, tier and table will be refused" >&2
fi
git describe --always --dirty >"$folder/commit" 2>/dev/null || echo unknown >"$folder/commit"
# The C and C++ libraries are everywhere; libtorch, and CUDA beside it, are that machine's.
everywhere='^(linux-vdso|ld-linux|lib(c|m|dl|pthread|rt|util|gcc_s|stdc[+][+])[.])'
for program in "$folder"/*; do
  { ldd "$program" 2>/dev/null || true; } | awk -v everywhere="$everywhere" '
    $1 ~ everywhere || $1 ~ /^lib(torch|c10|gomp)/ || $3 ~ "/(torch/lib|nvidia|cuda[^/]*)/" {next}
    $3 ~ /^[/]/ {print $3}'
done | sort -u | xargs -r -I{} cp -L {} "$folder/lib/"
strip --strip-unneeded "$folder"/* "$folder"/lib/* 2>/dev/null || true
du -sh "$folder" | sed 's/^/bundle: /'
