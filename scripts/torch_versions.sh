#!/usr/bin/env bash
# Runs the tests that know libtorch with each version of libtorch, and writes the table of docs/torch-versions.md.
#
#   scripts/torch_versions.sh                   every cell that has not passed on the tree as it is, one after the other
#   scripts/torch_versions.sh 2.13.0            those of one version
#   scripts/torch_versions.sh 2.13.0 adapter    one cell; parts: builds adapter gpu python distributed opinfo demo
#   scripts/torch_versions.sh --list            which cells count
#
# A run that is stopped goes on where it was: each cell is written as it ends. A version has its environment in
# build/torch/VERSION and its build in build/torch-VERSION (4 GB together); an environment that VEDETTE_VENVS/VERSION
# holds already is used as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec /usr/bin/python3 scripts/torch_versions.py "$@"
