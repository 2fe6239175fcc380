#!/usr/bin/env bash
# Makes the wheel of the Python package, dist/vedette-*.whl, which carries the libraries that it uses, torch's aside.
#
#   scripts/wheel.sh [FOLDER [OPTION...]]    FOLDER: where the wheel goes instead of dist/; options are pip wheel's
#
# It is for the Python and the minor version of torch that it is built with, and for systems with this one's glibc or a
# later one. Installs missing packages first.
set -euo pipefail
case "${1:-}" in
  -h | --help) sed -n '2,7p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 0 ;;
esac
target=$(realpath -m "${1:-"$(dirname "${BASH_SOURCE[0]}")/../dist"}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
mkdir -p build "$target"
made=$(mktemp -d build/wheel.XXXXXX)
trap 'rm -rf "$made"' EXIT
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$made" \
  "${@:2}" .
# torch's own libraries are in the process before ours: vedette imports torch first.
PATH=$PWD/.venv/bin:$PATH .venv/bin/python -m auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10*.so' \
  --wheel-dir "$target" "$made"/vedette-*.whl
