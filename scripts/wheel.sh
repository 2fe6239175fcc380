#!/usr/bin/env bash
# Makes the wheel of the Python package, dist/vedette-*.whl, which carries the libraries that it uses, torch's aside.
#
#   scripts/wheel.sh [FOLDER [OPTION...]]    FOLDER: where the wheel goes instead of dist/; options are pip wheel's
#   scripts/wheel.sh --torch 2.15.0 [--torch 2.11.0] [--python 3.13] [FOLDER [OPTION...]]
#   scripts/wheel.sh --all [--python 3.13] [FOLDER [OPTION...]]    for each version of torch that the tests know
#
# It is for the Python and the minor versions of torch that it is built with, those of .venv without --torch, and for
# systems with this one's glibc or a later one. Environments of versions that .venv has not are made in build/torch
# (2 GB each). Installs missing packages first.
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

# build ENVIRONMENT FOLDER OPTION...: a wheel for the environment's Python and torch.
build() {
  mkdir -p "$2"
  PATH=$PWD/$1/bin:$PATH "$1/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --wheel-dir "$2" "${@:3}" .
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
