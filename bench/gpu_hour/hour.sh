#!/usr/bin/env bash
# Runs the steps of the first hour on a GPU machine from the folder that bundle.sh filled. It needs no compiler, network
# or root. Each call is for at most ten minutes:
#
#   hour.sh OUT first      5 minutes: the machine, vedette doctor, and gpu_probe
#                          (copies, remapping, registered and pinned memory, managed memory, NVML)
#   hour.sh OUT second     9 minutes: gpu_probe_torch
#                          (the placed executor, host times, bytes beside the allocator)
#   hour.sh OUT tier       9 minutes: the GPU tier: what it costs the host, trainings against plain ones at 100, 50 and
#                          30 % of their peak, one that needs 12 times its fast memory, compute-sanitizer
#   hour.sh OUT table      9 minutes: gpu_table, beside pinned saved tensors and checkpointing; called again, it goes on
#                          where the gpu_table.json stopped that is in OUT, or else in this folder
#   hour.sh OUT irregular  9 minutes: eight programs whose steps never repeat, at 50 and 25 % of their peak
#   hour.sh OUT again      2 minutes: copies, remapping and announcements once more; what decides is taken twice
#   hour.sh OUT rest       3 minutes: what docs/gpu-facts.md lacks: host frames, managed memory, CUPTI's records, energy
#                          beside a kernel, a MemPool over our range
#
# WORDS holds more words for the programs: WORDS=--quick rehearses with small sizes; TABLE more for gpu_table. UNDER is
# a command that starts the programs: scripts/with_simulated_gpu. A call writes at most five files in OUT, each as soon
# as it is known. No part depends on another's success, and each has a limit of its own; those that the call has no time
# left for are told. The device's settings are left alone, and managed memory is never more than what is free.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?the folder for the results}
what=${2:-first}
commit=$(cat "$here/commit" 2>/dev/null || echo unknown)
mkdir -p "$out"
out=$(cd "$out" && pwd)
ends=$((SECONDS + 570))
torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null)
libraries=$here:$here/lib
if [ -n "$torch" ]; then libraries=$libraries:$torch/lib:$(dirname "$torch")/nvidia/cu13/lib; fi
quick=
case " ${WORDS:-} " in *' --quick '*) quick=1 ;; esac

limited() {  # SECONDS COMMAND...
  local seconds=$1
  shift
  LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout -k 5 "$seconds" ${UNDER:-} "$@"
}

probe() {  # PROGRAM SECONDS NAME WORDS...: one program with a limit of its own
  local program=$1 seconds=$2 name=$3
  shift 3
  limited $((seconds + 10)) "$here/$program" --json "$out/$name.json" --budget "$seconds" --commit "$commit" "$@" \
    ${WORDS:-} >"$out/$name.txt" 2>>"$out/machine.txt"
  echo "$name: status $?"
}

part() {  # SECONDS NAME COMMAND...: appends to OUT/$what.txt; its table of one line to OUT/$what.jsonl
  local seconds=$1 name=$2 left=$((ends - SECONDS)) began=$SECONDS status
  shift 2
  if [ "$left" -lt 10 ]; then
    echo "$name: left out, since the call's time is used up" | tee -a "$out/$what.txt"
    return
  fi
  echo "== $name" >>"$out/$what.txt"
  rm -f "$out/part.json"
  limited $((seconds < left ? seconds : left)) "$@" >>"$out/$what.txt" 2>&1
  status=$?
  if [ -s "$out/part.json" ]; then
    { printf '{"part": "%s", "status": %d, "commit": "%s", "result": ' "$name" $status "$commit"
      tr -d '\n' <"$out/part.json"
      echo '}'; } >>"$out/$what.jsonl"
  fi
  rm -f "$out/part.json"
  echo "$name: status $status, $((SECONDS - began)) s" | tee -a "$out/$what.txt"
}

compare() {  # SECONDS NAME SHARE WORDS...: a training under a guard beside a plain one, bit by bit
  local seconds=$1 name=$2 share=$3
  shift 3
  part "$seconds" "$name at $share %" "$here/train" --compare --device cuda --slow host --made-up-data --deterministic \
    --fast-memory "$share%" --json "$out/part.json" "$@"
}

tier() {
  export CUBLAS_WORKSPACE_CONFIG=:4096:8  # deterministic cuBLAS
  local small=(--small --steps 20) middle=(--steps 30) twelfth=8.3 share
  if [ -n "$quick" ]; then small=(--small --steps 8) middle=(--small --steps 8) twelfth=25; fi
  part 60 place_cost "$here/place_cost"
  compare 60 'small gpt' 50 --model gpt "${small[@]}"
  for share in 50 100; do compare 60 mlp $share --model mlp "${middle[@]}"; done  # an op of Adam needs 40 % of it
  for share in 50 30 100; do compare 60 gpt $share --model gpt "${middle[@]}"; done
  compare 60 'gpt, recomputing,' 30 --model gpt --recompute "${middle[@]}"
  compare 90 gpt $twelfth --model gpt "${middle[@]}"
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
  if [ -n "$sanitizer" ]; then
    part 120 compute-sanitizer "$sanitizer" --tool memcheck --error-exitcode 9 --target-processes all "$here/train" \
      --device cuda --slow host --small --model mlp --steps 6 --fast-memory 50% --json "$out/part.json"
  else
    echo 'compute-sanitizer: left out, since this machine has none' | tee -a "$out/tier.txt"
  fi
  compare 60 'small gpt' 30 --model gpt "${small[@]}"
  compare 60 'small gpt' 100 --model gpt "${small[@]}"
  for share in 100 50; do compare 60 'small mlp' $share --model mlp "${small[@]}"; done
  [ -n "$quick" ] || compare 180 gpt2-medium $twelfth --model gpt2-medium --batch 16 --steps 20
}

machine() {
  date -u +%FT%TZ
  uname -a
  lscpu
  numactl -H
  free -m
  ulimit -l
  cat /sys/fs/cgroup/memory.max
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
    limited 60 "$here/vedette" doctor --no-disk >"$out/doctor.txt" 2>&1
    echo "doctor: status $?"
    probe gpu_probe 290 gpu_probe --cell-limit 15 --slow "${SLOW:-/tmp}"
    ;;
  second)
    probe gpu_probe_torch 530 gpu_probe_torch --cell-limit 60
    ;;
  tier)
    tier
    ;;
  table)
    words=(--json "$out/gpu_table.json" --seconds 540 --rounds 1)
    for before in "$out" "$here"; do
      [ ! -f "$before/gpu_table.json" ] || { words+=(--resume "$before/gpu_table.json"); break; }
    done
    if [ -n "$quick" ]; then words+=(--small --steps 3 --warm-up 6); else words+=(--steps 8); fi
    part 565 gpu_table "$here/gpu_table" "${words[@]}" ${TABLE:-}
    ;;
  irregular)
    words=(--device cuda --rounds 1 --slow "$out" --json "$out/irregular.json")
    if [ -n "$quick" ]; then words+=(--small --steps 6 --programs generate,growing_batch); else words+=(--steps 30); fi
    part 565 irregular "$here/irregular" "${words[@]}"
    ;;
  again)
    probe gpu_probe 80 gpu_probe_again --cell-limit 15 --no-disk --only copies,chunks,remap_waited,remap_queued
    part 60 place_cost "$here/place_cost"
    ;;
  rest)
    probe gpu_probe 80 gpu_probe_rest --cell-limit 10 --no-disk --only host_frames,energy,fault_records,managed
    probe gpu_probe_torch 80 gpu_probe_torch --cell-limit 30
    ;;
  *)
    echo "hour.sh: first, second, tier, table, irregular, again or rest, not $what" >&2
    exit 2
    ;;
esac
ls -l "$out"
[ "$what" != first ] || grep -m1 -A3 'Product Name' "$out/machine.txt"
