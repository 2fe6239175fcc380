#!/usr/bin/env bash
# Trains a model with less memory than it needs, next to the same training without vedette, and compares the two.
#
#   scripts/demo.sh [--model NAME] [--fast-memory SIZE] [--steps N] [--json FILE] [--step-in-backward]
#
#   --model        resnet18 (default), or another model of examples/train --help
#   --fast-memory  bytes (suffixes KiB, MiB, GiB), or a share of the plain run's peak (default 25%)
#   --steps        training steps of each run
#   --json FILE    also writes the table to FILE
#   --step-in-backward   the guarded run updates each parameter as soon as its gradient is there
#
# Installs missing packages and builds a release first. Leaves the recording of the guarded run in demo.vedette
# (build/release/vedette info demo.vedette reads it).
set -euo pipefail
case " $* " in
  *" -h "* | *" --help "*) sed -n '2,13p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 0 ;;
esac
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A relative --json FILE is meant from where the user stands.
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --json) [ $# -gt 1 ] || { echo "demo: --json needs a file" >&2; exit 2; }
      case "$2" in /*) file=$2 ;; *) file=$called_from/$2 ;; esac
      arguments+=(--json "$file"); shift 2 ;;
    --json=*) file=${1#--json=}
      case "$file" in /*) ;; *) file=$called_from/$file ;; esac
      arguments+=(--json "$file"); shift ;;
    *) arguments+=("$1"); shift ;;
  esac
done

scripts/setup.sh
mkdir -p build
echo "demo: building (some minutes the first time)" >&2
# A first build compiles several files as one; what a developer has chosen stays.
unity=()
[ -f build/release/CMakeCache.txt ] || unity=(-DVEDETTE_UNITY=ON)
cmake --preset release "${unity[@]}" >build/release.log 2>&1 ||
  { cat build/release.log >&2; echo "demo: configuring failed (above)" >&2; exit 1; }
# A line that is written over, to a terminal; else only what fails.
if [ -t 2 ]; then
  NINJA_STATUS='demo: built %f of %t ' cmake --build --preset release --target train vedette_cli >&2
else
  cmake --build --preset release --target train vedette_cli -- --quiet
fi
exec build/release/examples/train --compare --record demo.vedette "${arguments[@]}"
