#!/usr/bin/env bash
# Makes what one would publish of the last commit, in FOLDER (default: dist/release):
#
#   vedette-V-source.tar.gz               the tracked files
#   vedette-V-linux-x86_64-torchT.tar.gz  include, lib and bin as `cmake --install` leaves them, for libtorch T
#   vedette-V-*.whl                       the Python package, as scripts/wheel.sh makes it
#   NOTES.md, SHA256SUMS                  this version's part of CHANGELOG.md; checksums of all of it
#
#   scripts/release.sh [FOLDER [OPTION...]]    options are wheel.sh's: --all carries every version of torch
#
# Uncommitted changes are refused. It takes 10 to 20 minutes on 2 cores, and says what it does.
# scripts/try_release.sh tries each part.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,13p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 0 ;; esac
target=$(realpath -m "${1:-"$(dirname "${BASH_SOURCE[0]}")/../dist/release"}")
shift || true
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "release: $*" >&2; exit 1; }
say() { echo "release: $*" >&2; }
[ -z "$(git status --porcelain --untracked-files=no)" ] ||
  fail "tracked files have changes that are not committed; commit or stash them first"
version=$(sed -n 's/^project(vedette VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
notes=$(awk -v head="## $version" 'index($0, "## ") == 1 { on = $0 == head; next } on' CHANGELOG.md)
[ -n "$notes" ] || fail "CHANGELOG.md has no section \"## $version\"; write what is new in it"

scripts/setup.sh
mkdir -p "$target" build
made=$(mktemp -d build/release.XXXXXX)
trap 'rm -rf "$made"' EXIT
find "$target" -maxdepth 1 \( -name 'vedette-*' -o -name NOTES.md -o -name SHA256SUMS \) -delete
printf '%s\n' "$notes" | sed '/./,$!d' > "$target/NOTES.md"

say "the sources (1 of 3)"
git archive --prefix="vedette-$version/" -o "$target/vedette-$version-source.tar.gz" HEAD

say "the library and the command (2 of 3), 3 to 6 minutes"
cmake -S . -B build/archive -G Ninja -D CMAKE_BUILD_TYPE=Release -D VEDETTE_TESTS=OFF -D VEDETTE_BENCH=OFF \
  -D VEDETTE_UNITY=ON > "$made/log" || { cat "$made/log" >&2; fail "configuring failed"; }
cmake --build build/archive > "$made/log" || { tail -40 "$made/log" >&2; fail "building failed"; }
torch=$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\) //p' \
  .venv/lib/python3*/site-packages/torch/include/torch/headeronly/version.h | paste -sd.)
name=vedette-$version-linux-x86_64-torch$torch
cmake --install build/archive --prefix "$made/$name" > /dev/null
libraries=$(ldd "$made/$name/bin/vedette" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | xargs -r -n1 realpath |
  { xargs -r dpkg -S 2> /dev/null || true; } | cut -d: -f1 | sort -u | paste -sd' ')
cp LICENSE CHANGELOG.md "$made/$name/"
cat > "$made/$name/INSTALL.txt" << TEXT
vedette $version for libtorch $torch, x86-64, glibc $(getconf GNU_LIBC_VERSION | cut -d' ' -f2) or later.

The command needs: $libraries.
Programs: cmake -D CMAKE_PREFIX_PATH=THIS_FOLDER -D VEDETTE_TORCH_DIR=.../site-packages/torch, and
  find_package(vedette REQUIRED COMPONENTS torch)
  target_link_libraries(program PRIVATE vedette::torch)
They need the packages that \`scripts/setup.sh --packages debian\` of the sources prints.
TEXT
tar -C "$made" -czf "$target/$name.tar.gz" "$name"

say "the wheel (3 of 3), 3 to 6 minutes for each version of torch"
scripts/wheel.sh "${@}" "$made/wheel" > "$made/log" || { tail -40 "$made/log" >&2; fail "the wheel failed"; }
cp "$made"/wheel/*.whl "$target/"
(cd "$target" && sha256sum vedette-* NOTES.md > SHA256SUMS)
ls -l "$target"
