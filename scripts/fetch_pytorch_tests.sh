#!/usr/bin/env bash
# Brings PyTorch's own tests of its C++ frontend (test/cpp/api and test/cpp/common), for tests/foreign/pytorch_api.
#
#   scripts/fetch_pytorch_tests.sh [FOLDER]   FOLDER: build/pytorch-source by default
#
# They are read from Debian 13's source package (PyTorch 2.6, 27 MB), from the mirror that this machine's apt uses.
# The wheel of 2.15 that pip has is without tests. What that version tests and 2.15 no longer has does not compile or
# pass without a guard, either, and is told. Nothing is installed. A folder that is there already is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/pytorch-source}
suite=trixie
fail() { printf 'fetch_pytorch_tests: %s\n' "$*" >&2; exit 1; }

[ ! -s "$folder/test/cpp/api/support.h" ] || exit 0
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
  sed -n 's/ bookworm$//p' | head -n 1)
[ -n "$mirror" ] || fail "apt knows no mirror of Debian 12; run this on Debian 12, or set VEDETTE_PYTORCH_SOURCE."
mkdir -p build
work=$(mktemp -d build/apt.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,source} "$folder"
printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" $suite \
  >"$work/sources.list"
options=(-q -o "Dir::Etc::sourcelist=$PWD/$work/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=
  -o "Dir::State::lists=$PWD/$work/lists" -o "Dir::Cache=$PWD/$work/cache")
apt-get "${options[@]}" update >"$work/log" 2>&1 &&
  (cd "$work/source" && apt-get "${options[@]}" source --download-only pytorch) >>"$work/log" 2>&1 ||
  { tail -n 5 "$work/log" >&2
    fail "apt could not fetch PyTorch's source of Debian $suite (its last lines are above)."; }
tar -C "$folder" --strip-components=1 --wildcards -xf "$work"/source/pytorch_*.orig.tar.* '*/test/cpp/api' \
  '*/test/cpp/common'
