#!/usr/bin/env bash
# Makes the wheel of the Python package, dist/vedette-*.whl, which carries the libraries that it uses, torch's aside.
#
#   scripts/wheel.sh [FOLDER [OPTION...]]    FOLDER: where the wheel goes instead of dist/; options are pip wheel's
#   scripts/wheel.sh --torch 2.15.0 [--torch 2.11.0] [--python 3.13] [FOLDER [OPTION...]]
#   scripts/wheel.sh --all [--python 3.13] [FOLDER [OPTION...]]    for each version of torch that the tests know
#
# It is for the Python and the minor versions of torch that it is built with, those of .venv without --torch, and for
# systems with this one's glibc or a later one. Environments of versions that .venv has not are made in build/torch
# (2 GB each). Installs missing packages first. Says how far it is: a version takes 4 minutes on two free processors.
set -euo pipefail
pythons=/usr/bin/python3 versions=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) sed -n '2,11p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 0 ;;
    --torch) versions+=("${2:?--torch takes a version}"); shift 2 ;;
    --python) pythons=$(command -v "python${2:?--python takes a version}") ||
        { echo "wheel: there is no python$2 on this machine" >&2; exit 1; }
      shift 2 ;;
    --all) versions=(2.11.0 2.12.1 2.13.0 2.14.1 2.15.0); shift ;;
    *) break ;;
  esac
done
target=$(realpath -m "${1:-"$(dirname "${BASH_SOURCE[0]}")/../dist"}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
mkdir -p build "$target"
made=$(mktemp -d build/wheel.XXXXXX)
trap 'rm -rf "$made"' EXIT

say() { printf 'wheel: %s\n' "$*" >&2; }

# Of what pip passes on of ninja: a line that is written over, to a terminal; else one for each tenth.
show_progress() {
  awk -v terminal="$([ -t 2 ] && echo 1)" 'match($0, /\[[0-9]+\/[0-9]+\]/) {
      split(substr($0, RSTART + 1, RLENGTH - 2), n, "/")
      if (terminal) printf "\rwheel: built %d of %d ", n[1], n[2]
      else if (int(10 * n[1] / n[2]) > tenth) printf "wheel: built %d of %d\n", n[1], n[2]
      tenth = int(10 * n[1] / n[2])
      fflush()
    }
    END { if (terminal) print "" }' >&2
}

# build ENVIRONMENT FOLDER OPTION...: a wheel for the environment's Python and torch.
build() {
  local since=$SECONDS log=build/wheel.log
  mkdir -p "$2"
  say "builds for $("$1/bin/python" -c 'import sys, importlib.metadata as of
print("Python %d.%d and torch" % sys.version_info[:2], of.version("torch"))'), 4 to 9 minutes"
  PATH=$PWD/$1/bin:$PATH "$1/bin/python" -m pip wheel --verbose --disable-pip-version-check --no-deps \
    --no-build-isolation --wheel-dir "$2" "${@:3}" . 2>&1 | tee "$log" | show_progress ||
    { tail -n 30 "$log" >&2; say "building failed (above; all of it is in $log)"; return 1; }
  say "took $(((SECONDS - since) / 60)) min $(((SECONDS - since) % 60)) s"
}

if [ ${#versions[@]} -eq 0 ]; then
  build .venv "$made/one" "${@:2}"
else
  read -r tag python < <("$pythons" -c \
    'import sys; print(sys.implementation.cache_tag, "python%d.%d" % sys.version_info[:2])')
  for version in "${versions[@]}"; do
    environment=.venv
    if ! compgen -G ".venv/lib/$python/site-packages/torch-$version.dist-info" >/dev/null; then
      environment=build/torch/$version/$tag
      VEDETTE_PYTHON=$pythons VEDETTE_TORCH_VERSION=$version VEDETTE_VENV=$environment scripts/setup.sh
    fi
    build "$environment" "$made/$version" --config-settings=build-dir="build/wheel-$tag-$version" "${@:2}"
  done
fi
mkdir "$made/all"
/usr/bin/python3 scripts/merge_wheels.py "$made/all" "$made"/*/vedette-*.whl >/dev/null
# torch's own libraries are in the process before ours: vedette imports torch first.
PATH=$PWD/.venv/bin:$PATH .venv/bin/python -m auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10*.so' \
  --wheel-dir "$target" "$made"/all/vedette-*.whl
say "the wheel is in $target"
