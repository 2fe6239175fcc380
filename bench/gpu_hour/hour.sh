#!/usr/bin/env bash
# Runs the steps of the first hour on a GPU machine from the folder that bundle.sh filled. It needs no compiler, network
# or root.
#
#   hour.sh OUT first      5 minutes: the machine, and gpu_probe
#                          (copies, remapping, registered and pinned memory, managed memory, NVML)
#   hour.sh OUT second     9 minutes: gpu_hour, and gpu_probe_torch
#                          (the placed executor, host times, bytes beside the allocator)
#   hour.sh OUT again      2 minutes: copies, remapping and announcements once more; what decides is taken twice
#
# WORDS holds more words for the programs: WORDS=--quick rehearses with small sizes. A call writes at most five files in
# OUT, each as soon as it is known; no part depends on another's success. The device's settings are left alone, and
# managed memory is never more than a quarter of what is free.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?the folder for the results}
what=${2:-first}
commit=$(cat "$here/commit" 2>/dev/null || echo unknown)
mkdir -p "$out"
torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null)
libraries=$here/lib
if [ -n "$torch" ]; then libraries=$libraries:$torch/lib:$(dirname "$torch")/nvidia/cu13/lib; fi

probe() {  # PROGRAM SECONDS NAME WORDS...: one program with a limit of its own
  local program=$1 seconds=$2 name=$3
  shift 3
  LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout -k 5 $((seconds + 10)) "$here/$program" \
    --json "$out/$name.json" --budget "$seconds" --commit "$commit" "$@" ${WORDS:-} \
    >"$out/$name.txt" 2>>"$out/machine.txt"
  echo "$name: status $?"
}

machine() {
  date -u +%FT%TZ
  uname -a
  lscpu
  numactl -H
  free -m
  ulimit -l
  timeout 20 nvidia-smi -q
  timeout 20 nvidia-smi topo -m
  for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
    grep -H . "$device"/{class,numa_node,current_link_speed,current_link_width}
  done
  nvcc --version
  ls "$torch/lib" "$(dirname "$torch")"/nvidia/*/lib
  timeout 60 python3 -c 'import torch
print(torch.__version__, torch.version.git_version, torch.backends.cudnn.version())
print(torch.cuda.get_device_properties(0))'
}

case $what in
  first)
    machine >"$out/machine.txt" 2>&1
    probe gpu_probe 290 gpu_probe --cell-limit 15 --slow "${SLOW:-/tmp}"
    ;;
  second)
    probe gpu_hour 400 gpu_hour --cell-limit 60
    probe gpu_probe_torch 130 gpu_probe_torch --cell-limit 40
    ;;
  again)
    probe gpu_probe 80 gpu_probe_again --cell-limit 15 --no-disk --only copies,chunks,remap_waited,remap_queued
    probe gpu_hour 30 gpu_hour_again --cell-limit 20 --only move,announce
    ;;
  *)
    echo "hour.sh: first, second or again, not $what" >&2
    exit 2
    ;;
esac
ls -l "$out"
[ "$what" != first ] || grep -m1 -A3 'Product Name' "$out/machine.txt"
