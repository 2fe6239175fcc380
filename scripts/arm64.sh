#!/usr/bin/env bash
# Compiles vedette for 64-bit Arm on an x86-64 Debian, and runs the tests that an emulator of programs (qemu-user) can
# run: values, policies, packing, simulator, judge, planner, recordings and the command. A live guard needs a kernel's
# userfaultfd, which no emulated program has.
#
#   scripts/arm64.sh             library, command and tests, without libtorch: build/arm64
#   scripts/arm64.sh --torch     also the guard, its examples and benches, compiled against libtorch's wheel for arm64
#                                (500 MB to download): build/arm64-torch
#
# Installs Debian's cross compiler, the emulator and the arm64 libraries, as root. VEDETTE_TORCH_VERSION as in setup.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'arm64: %s\n' "$*" >&2; }
fail() { printf 'arm64: %s\n' "$*" >&2; exit 1; }

with_torch=''
case "${1:-}" in
  '') ;;
  --torch) with_torch=1 ;;
  *) fail "takes --torch or nothing." ;;
esac
command -v apt-get >/dev/null ||
  fail "the cross compiler and the arm64 libraries come from Debian's packages: use Debian."
torch_version=${VEDETTE_TORCH_VERSION:-$(sed -n 's/^torch_version=.*:-\(.*\)}/\1/p' scripts/setup.sh)}

# What has code comes for arm64; what is headers alone is the same for all.
packages=(crossbuild-essential-arm64 qemu-user-static)
while read -r package; do
  case $package in
    libcli11-dev | nlohmann-json3-dev) packages+=("$package") ;;
    lib*-dev | zlib1g-dev | coinor-*-dev) packages+=("$package:arm64") ;;
    cmake | ninja-build | ccache | pkg-config | python3 | python3-venv) packages+=("$package") ;;
  esac
done < <(scripts/setup.sh --packages debian)
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || fail "installing ${missing[*]} needs root: run this as root once."
  say "installing Debian packages: ${missing[*]}"
  dpkg --add-architecture arm64
  apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install them (its reason is above)."
fi

build() { # FOLDER [CMAKE'S OPTIONS...]
  local folder=$1
  shift
  cmake -S . -B "$folder" -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DCMAKE_BUILD_TYPE=Release \
    -DVEDETTE_UNITY=ON -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@" >"$folder.log" 2>&1 ||
    { tail -n 5 "$folder.log" >&2; fail "cmake failed"; }
  say "compiling in $folder"
  ninja -C "$folder" all
}

mkdir -p build
build build/arm64 -DVEDETTE_TORCH=OFF -DVEDETTE_BENCH=OFF
rooms='^(base|model|policy|pack|sim|moves|share|profiler|cli)/'
# They open sessions, or start the command where no emulator is named. On Arm Cbc finds another of AutoTM's plans.
beyond='^share/session_test|^cli/(doctor|environments|memory_cgroup|progress|wrong_uses)_test|^pack/command_test'
beyond+='|WriteAPolicy|Goldens.PlansOfAll'
say "tests under $(qemu-aarch64-static --version | head -n 1)"
ctest --test-dir build/arm64 -LE slow -R "$rooms" -E "$beyond" -j "$(nproc)" --output-on-failure

if [ -n "$with_torch" ]; then
  wheel=build/arm64-wheel-$torch_version
  if [ ! -e $wheel/torch/include/torch/script.h ]; then
    say "downloading libtorch $torch_version for arm64"
    rm -rf "$wheel" "$wheel.new" "$wheel.down"
    python3 -m venv build/arm64-pip
    for what in "torch==$torch_version" nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cupti nvidia-nvml-dev; do
      build/arm64-pip/bin/pip download -q --no-deps --only-binary=:all: --python-version 3.11 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 \
        -d $wheel.down "$what" ||
        fail "pip could not download $what for arm64 (its reason is above)."
    done
    for each in "$wheel".down/*.whl; do python3 -m zipfile -e "$each" $wheel.new; done
    mv $wheel.new $wheel
    rm -rf $wheel.down build/arm64-pip
  fi
  build build/arm64-torch -DVEDETTE_TORCH_DIR="$PWD/$wheel/torch" -DVEDETTE_TESTS=OFF
fi
