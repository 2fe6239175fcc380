#!/usr/bin/env bash
# Sets up, builds everything with g++ and the library, its tools and the fuzzers with clang++ (warnings are errors; what
# needs libtorch with g++ alone), and runs the tests.
#
#   scripts/test.sh          25 to 65 minutes on 2 cores from a clean checkout, 15 when nothing changed
#   scripts/test.sh --full   adds the slow tests, minutes of stress, tests and benchmarks by clang++, and the tests
#                            under the address, undefined-behaviour and thread sanitizers
#
# Ends with the list of tests that this machine could not run, each with its reason, and ctest's closing line.
# The data of some tests is read from the folder in VEDETTE_DATA; its default is ../shared/data where that exists.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

full=
case "${1:-}" in
  "") ;;
  --full) full=1 ;;
  -h | --help) sed -n '2,10p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
  *) echo "test: unknown argument $1; there is only --full" >&2; exit 2 ;;
esac

scripts/setup.sh ${full:+--full}
if [ -z "${VEDETTE_DATA:-}" ] && [ -d ../shared/data ]; then VEDETTE_DATA=$(realpath ../shared/data); fi
export VEDETTE_DATA=${VEDETTE_DATA:-}
if [ -n "$full" ]; then
  export VEDETTE_STRESS_SECONDS=${VEDETTE_STRESS_SECONDS:-180}
  # PyTorch's own tests; where they cannot be fetched a skipped test says so.
  if [ -z "${VEDETTE_PYTORCH_SOURCE:-}" ] && scripts/fetch_pytorch_tests.sh; then
    VEDETTE_PYTORCH_SOURCE=$PWD/build/pytorch-source
  fi
fi
export CTEST_OUTPUT_ON_FAILURE=1
failed=0
closing=
without_randomisation=

say() { printf 'test: %s min: %s\n' $((SECONDS / 60)) "$*"; }

# build PRESET TARGET...: configures and builds; a failure ends the script with the compiler's output.
build() {
  local preset=$1
  shift
  say "building with preset $preset"
  cmake --preset "$preset" -DVEDETTE_DATA="$VEDETTE_DATA" \
    ${VEDETTE_PYTORCH_SOURCE:+-DVEDETTE_PYTORCH_SOURCE="$VEDETTE_PYTORCH_SOURCE"} >"build/$preset.log" 2>&1 ||
    { cat "build/$preset.log" >&2; say "configuring preset $preset failed (above)"; exit 1; }
  $without_randomisation cmake --build --preset "$preset" --target "$@" -- --quiet
}

# check PRESET CTEST-ARGUMENT...: runs tests, shows all but ctest's closing line, which goes to $closing.
check() {
  local preset=$1 log=build/$1-tests.log
  shift
  say "running the tests of preset $preset"
  rm -f "build/$preset-tests.xml" "$log"
  # No ordinary test takes this long; one that hangs in the kernel ctest cannot end.
  local longest=150
  [ -z "$full" ] || longest=1200
  /usr/bin/python3 scripts/standstill.py "$log" "$longest" &
  local watch=$!
  set +e
  $without_randomisation ctest --test-dir "build/$preset" --output-junit "$PWD/build/$preset-tests.xml" \
    --no-tests=error "$@" 2>&1 |
    tee "$log" | grep --line-buffered -vE '^[0-9]+% tests passed, '
  [ "${PIPESTATUS[0]}" = 0 ] || failed=1
  kill "$watch"
  set -e
  closing=$(grep -E '^[0-9]+% tests passed, ' "$log" || echo "no tests ran")
  # A ctest that ended early has printed no closing line.
  [ "$closing" != "no tests ran" ] || failed=1
}

mkdir -p build
by_clang=(src/all profiler/all examples/all tests/fuzz/all)  # the tests and benchmarks take as long again
[ -z "$full" ] || by_clang=(all)
build clang "${by_clang[@]}" all_verify_interface_header_sets
build release all all_verify_interface_header_sets
if [ -n "$full" ]; then
  sanitizer_tests=(-LE 'torch|nvme|package|slow' -j "$(nproc)" --timeout 900)
  build asan all
  ASAN_OPTIONS=detect_leaks=0 check asan "${sanitizer_tests[@]}"
  say "asan: $closing" | sed 's/ tests passed/ passed/'
  # Address space randomisation of newer kernels leaves less room than g++ 12's thread sanitizer expects, in tests and
  # where they are listed.
  without_randomisation="setarch -R"
  build tsan all
  check tsan "${sanitizer_tests[@]}"
  without_randomisation=
  say "tsan: $closing" | sed 's/ tests passed/ passed/'
  check clang -j "$(nproc)" -LE 'package|slow'
  say "clang: $closing" | sed 's/ tests passed/ passed/'
  check release -j 4  # the slow ones wait most of their time
else
  check clang -L fuzz -j "$(nproc)"
  check release -j 2 -LE slow
fi
/usr/bin/python3 scripts/skipped_tests.py build/release-tests.xml
if [ -z "$full" ]; then
  echo "  left to scripts/test.sh --full: sanitizers, long stress, and $(ctest --test-dir build/release -N -L slow |
    sed -n 's/^Total Tests: //p') slow tests"
fi
printf '\n%s\n' "$closing"
exit $failed
