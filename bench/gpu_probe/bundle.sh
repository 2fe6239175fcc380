#!/usr/bin/env bash
# Builds both probes and gathers them, with the libraries that a bare machine lacks, in a folder that can be carried to
# a GPU machine (x86-64, glibc 2.36 or younger). There FOLDER/run.sh OUT measures everything within ten minutes.
#
#   bench/gpu_probe/bundle.sh FOLDER [BUILD]
#     BUILD: a build folder with VEDETTE_TORCH and VEDETTE_BENCH on; default build/release
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${1:?the folder to fill}
build=${2:-build/release}

[ -f "$build/CMakeCache.txt" ] || cmake --preset release -B "$build" >/dev/null
cmake --build "$build" --target gpu_probe gpu_probe_torch -- --quiet
mkdir -p "$folder/lib"
cp "$build/bench/gpu_probe" "$build/bench/gpu_probe_torch" bench/gpu_probe/run.sh "$folder/"
if [ -f "$build/bench/libgpu_probe_torch_cuda.so" ]; then
  cp "$build/bench/libgpu_probe_torch_cuda.so" "$folder/"
else
  echo "bundle: no CUDA headers beside libtorch: the torch probe will measure on the processor only" >&2
fi
strip --strip-unneeded "$folder"/gpu_probe "$folder"/gpu_probe_torch "$folder"/*.so 2>/dev/null || true
git describe --always --dirty >"$folder/commit" 2>/dev/null || echo unknown >"$folder/commit"
# What Debian's packages bring and other machines may not have. libstdc++ and below are everywhere; libtorch is that
# machine's.
for library in liburing hwloc udev fmt xml2 pciaccess ltdl icu lzma libz; do
  { ldd "$folder/gpu_probe" || true; } | awk -v name="$library" '$1 ~ name && $3 ~ /^\// {print $3}'
done | sort -u | xargs -r -I{} cp -L {} "$folder/lib/"
du -sh "$folder" | sed 's/^/bundle: /'
