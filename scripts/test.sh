#!/usr/bin/env bash
# Sets up, builds, and runs the tests (warnings are errors).
#
#   scripts/test.sh                   what continuous integration runs: g++, all tests but the slow ones
#   scripts/test.sh --room engine     builds and runs tests/engine alone: the usual loop after a change of one file
#   scripts/test.sh --full            all that can be tested, in parts of at most an hour
#   scripts/test.sh --full --part 3   one part; a part that passes leaves its row in docs/full-run.md
#   scripts/test.sh --parts           what the parts are, and which of them count for the tree as it is
#
# Ends with its stages and their minutes, the tests that this machine could not run, each with its reason, and ctest's
# closing line. --full exits with 0 only if all parts count.
# The data of some tests is read from the folder in VEDETTE_DATA; its default is ../shared/data where that exists.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,12p' "$0" | sed 's/^# \{0,1\}//'; }
refuse() { echo "test: $*" >&2; usage >&2; exit 2; }
mode=gate part='' room=''
while [ $# -gt 0 ]; do
  case "$1" in
    --full) mode=full ;;
    --parts) exec /usr/bin/python3 scripts/full_run.py ;;
    --part) part=${2:-}; shift ;;
    --room) mode=room room=${2:-}; shift ;;
    -h | --help) usage; exit 0 ;;
    *) refuse "unknown argument $1" ;;
  esac
  [ $# -eq 0 ] || shift
done
parts=$(/usr/bin/python3 scripts/full_run.py --names)
[ -z "$part" ] || [ $mode = full ] || refuse "--part goes with --full"
[ -z "$part" ] || grep -qx "$part .*" <<<"$parts" || refuse "--part takes one of these:"$'\n'"$parts"
[ $mode != room ] || [ -d "tests/$room" ] || refuse "--room takes a folder of tests/"

if [ -z "${VEDETTE_DATA:-}" ] && [ -d ../shared/data ]; then VEDETTE_DATA=$(realpath ../shared/data); fi
export VEDETTE_DATA=${VEDETTE_DATA:-}
export CTEST_OUTPUT_ON_FAILURE=1
mkdir -p build
failed=0
closing='no tests ran'
stages=''
building_s=0  # of processors
tests_s=0
without_randomisation=''

say() { printf 'test: %s min: %s\n' $((SECONDS / 60)) "$*"; }

# Seconds that processors computed for this script's children that have ended, ccache's and compilers' among them.
processor_s() {
  awk -v ticks="$(getconf CLK_TCK)" '{ printf "%d", ($16 + $17) / ticks }' /proc/$$/stat
}

# stage WORDS: ends the stage that began at $began.
stage() { stages+=$(printf '  %6.1f min  %s' "$(awk "BEGIN { print ($SECONDS - $began) / 60 }")" "$*")$'\n'; }

# build PRESET CMAKE-OPTION... -- TARGET...: configures and builds; a failure ends the script with the compiler's words.
build() {
  local preset=$1 options=() began=$SECONDS before
  before=$(processor_s)
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  say "building with preset $preset"
  cmake --preset "$preset" -DVEDETTE_DATA="$VEDETTE_DATA" "${options[@]}" >"build/$preset.log" 2>&1 ||
    { cat "build/$preset.log" >&2; say "configuring preset $preset failed (above)"; exit 1; }
  $without_randomisation cmake --build --preset "$preset" --target "$@" -- --quiet
  building_s=$((building_s + $(processor_s) - before))
  stage "building with preset $preset ($(($(processor_s) - before)) processor seconds)"
}

# check PRESET CTEST-ARGUMENT...: runs tests, shows all but ctest's closing line, which goes to $closing.
check() {
  local preset=$1 log=build/$1-tests.log began=$SECONDS
  shift
  say "running the tests of preset $preset"
  rm -f "build/$preset-tests.xml" "$log"
  # No ordinary test takes this long; one that hangs in the kernel ctest cannot end.
  local longest=150
  [ $mode != full ] || longest=1200
  /usr/bin/python3 scripts/standstill.py "$log" "$longest" &
  local watch=$!
  set +e
  $without_randomisation ctest --test-dir "build/$preset" --output-junit "$PWD/build/$preset-tests.xml" \
    --no-tests=error "$@" 2>&1 |
    tee "$log" | grep --line-buffered -vE '^[0-9]+% tests passed, '
  [ "${PIPESTATUS[0]}" = 0 ] || failed=1
  kill "$watch"
  set -e
  # A ctest that ended early has printed no closing line.
  closing=$(grep -E '^[0-9]+% tests passed, ' "$log") || { closing='no tests ran'; failed=1; }
  tests_s=$((tests_s + SECONDS - began))
  stage "tests of preset $preset: ${closing/ tests passed/ passed}"
}

setup() {
  local began=$SECONDS
  scripts/setup.sh "$@"
  stage "setting up"
}

gate() {
  build release -DVEDETTE_UNITY=ON -DVEDETTE_SLOW=OFF -DVEDETTE_WHOLE=OFF -- all all_verify_interface_header_sets
  check release -j "$(nproc)" -LE slow
}

# The parts of --full. Each file is compiled alone by clang++, so that one that lacks an include is found.
by_clang() {
  build clang -DVEDETTE_SLOW=OFF -- all all_verify_interface_header_sets
  check clang -j "$(nproc)" -LE 'package|slow'
}

sanitized() {
  # Address space randomisation of newer kernels leaves less room than g++ 12's thread sanitizer expects, in tests and
  # where they are listed.
  [ "$1" = asan ] || without_randomisation="setarch -R"
  build "$1" -DVEDETTE_UNITY=ON -- all
  ASAN_OPTIONS=detect_leaks=0 check "$1" -LE 'torch|nvme|package|slow' -j "$(nproc)" --timeout 900
  without_randomisation=''
}

# whole CTEST-ARGUMENT...: of all tests those that the arguments choose, with libtorch by two threads and at every
# budget. The slow ones wait most of their time.
whole() {
  export VEDETTE_STRESS_SECONDS=${VEDETTE_STRESS_SECONDS:-180}
  # PyTorch's own tests; where they cannot be fetched a skipped test says so.
  if [ -z "${VEDETTE_PYTORCH_SOURCE:-}" ] && scripts/fetch_pytorch_tests.sh; then
    VEDETTE_PYTORCH_SOURCE=$PWD/build/pytorch-source
  fi
  build release -DVEDETTE_UNITY=ON -DVEDETTE_SLOW=ON -DVEDETTE_WHOLE=ON \
    ${VEDETTE_PYTORCH_SOURCE:+-DVEDETTE_PYTORCH_SOURCE="$VEDETTE_PYTORCH_SOURCE"} -- all bench/all
  check release -j 4 "$@"
}

run_part() {
  local since=$SECONDS
  failed=0
  say "part $1: $(sed -n "s/^$1 //p" <<<"$parts")"
  case "$1" in
    1) gate ;;
    2) by_clang ;;
    3) sanitized asan ;;
    4) sanitized tsan ;;
    5) whole -L slow -LE torch -E '^mutants' ;;
    6) whole -L torch -R '^(adapter|foreign|distributed)/' ;;
    7) whole -L torch -E '^(adapter|foreign|distributed|python)/' ;;
    8) whole -L torch -R '^python/' ;;
    9) whole -L slow -R '^mutants' ;;
  esac
  [ $failed = 1 ] || /usr/bin/python3 scripts/full_run.py --passed "$1" --minutes $(((SECONDS - since + 59) / 60))
}

case $mode in
  gate)
    setup --tests
    gate
    ;;
  room)
    scripts/setup.sh --tests
    [ -f build/release/build.ninja ] || cmake --preset release -DVEDETTE_DATA="$VEDETTE_DATA" >build/release.log
    mapfile -t programs < <(ninja -C build/release -t targets all |
      sed -n "s/^\(tests_$room\(_[a-z0-9_]*\)\?\): phony$/\1/p")
    [ ${#programs[@]} -gt 0 ] || refuse "tests/$room has no programs: this needs libtorch, or benches, or the command"
    began=$SECONDS before=$(processor_s)
    cmake --build --preset release --target "${programs[@]}" -- --quiet
    building_s=$(($(processor_s) - before))
    stage "building the tests of $room ($building_s processor seconds)"
    check release -j "$(nproc)" -R "^$room/" -LE slow
    ;;
  full)
    setup --full
    all_failed=0
    for each in ${part:-$(sed 's/ .*//' <<<"$parts")}; do
      run_part "$each"
      [ $failed = 0 ] || all_failed=1
    done
    failed=$all_failed
    ;;
esac

[ ! -f build/release-tests.xml ] || /usr/bin/python3 scripts/skipped_tests.py build/release-tests.xml
if [ $mode = gate ]; then
  echo "  left to scripts/test.sh --full: clang++, sanitizers, long stress, and the slow tests"
fi
printf '\nstages (%s, %s processors):\n%s' \
  "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$stages"
printf 'in all %d min; building took %d processor seconds, tests %d min\n' $((SECONDS / 60)) "$building_s" \
  $((tests_s / 60))
[ $mode != full ] || /usr/bin/python3 scripts/full_run.py || failed=1
printf '\n%s\n' "$closing"
exit $failed
