#!/usr/bin/env bash
# Installs what is missing, builds everything and runs the tests.
#
#   scripts/test.sh [--full] [--labels REGEX] [--isa NAME] [--sanitize LIST] [--build-dir DIR] [--jobs N] [--no-install]
#
# --full       also runs every valid layout, 256 reshards and two hosts (tests/parallel/run_full.sh, about an hour): goes
#              on where a run of the same code was stopped, and stores the result in tests/parallel/results.
# --labels     only tests whose labels match, such as unit, golden, threads or 'unit|golden'.
# --isa        limits oneDNN to an instruction set that is smaller than the CPU's, such as AVX2 or AVX512_CORE: what it
#              computes with there is what other CPUs compute with.
# --sanitize   builds with -fsanitize=LIST (address,undefined or thread) in a directory of its own, only the test
#              binaries of --labels.
# --build-dir  default: build, or build-SANITIZER.
# --jobs       compilers and tests at a time; default: the number of cores.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "test: $*" >&2
  exit 2
}

full=false labels="" isa="" sanitize="" build_dir="" jobs=$(nproc) install=true
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=true ;;
    --labels) [ $# -ge 2 ] || fail "--labels needs a value"; labels=$2; shift ;;
    --isa) [ $# -ge 2 ] || fail "--isa needs a value"; isa=$2; shift ;;
    --sanitize) [ $# -ge 2 ] || fail "--sanitize needs a value"; sanitize=$2; shift ;;
    --build-dir) [ $# -ge 2 ] || fail "--build-dir needs a value"; build_dir=$2; shift ;;
    --jobs) [ $# -ge 2 ] || fail "--jobs needs a value"; jobs=$2; shift ;;
    --no-install) install=false ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) fail "unknown argument '$1'. Known: --full --labels --isa --sanitize --build-dir --jobs --no-install" ;;
  esac
  shift
done
[ -n "$build_dir" ] || build_dir=build${sanitize:+-${sanitize//,/-}}

configure() {
  local options=(-DMEGATRON_TESTS=ON)
  # Sanitizers find the same at -O1, which compiles in half the time.
  [ -z "$sanitize" ] || options+=("-DMEGATRON_SANITIZE=$sanitize" -DMEGATRON_OPTIMIZE=-O1)
  # A folder that somebody configured keeps what they chose.
  [ -e "$build_dir/CMakeCache.txt" ] || options+=(-DMEGATRON_UNITY=ON)
  cmake -S . -B "$build_dir" -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}"
}

# The targets that hold the tests of the labels asked for: all without labels.
targets() {
  if [ -z "$labels" ]; then
    echo all
  else
    ninja -C "$build_dir" -t targets all | sed -nE 's/^.*\/?tests_([a-z_]+): phony$/\1/p' | grep -E -- "$labels" |
      sort -u | sed 's/^/tests_/'
  fi
}

build() {
  local wanted
  mapfile -t wanted < <(targets)
  [ ${#wanted[@]} -gt 0 ] || fail "no test has a label that matches '$labels'"
  cmake --build "$build_dir" --parallel "$jobs" --target "${wanted[@]}"
}

run_tests() {
  local options=(--test-dir "$build_dir" --parallel "$jobs" --output-on-failure --no-tests=error)
  [ -z "$labels" ] || options+=(--label-regex "$labels")
  # Several tests run at a time: their OpenMP threads must sleep where they wait. Under the thread sanitizer OpenMP's own
  # synchronisation, which it does not know, would look like races.
  export OMP_WAIT_POLICY=passive
  [ -z "$isa" ] || export ONEDNN_MAX_CPU_ISA=$isa
  [ "$sanitize" != thread ] || export OMP_NUM_THREADS=1 TSAN_OPTIONS="suppressions=$PWD/tests/thread_sanitizer.supp"
  ctest "${options[@]}" | grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed )'
}

if $install; then scripts/install_dependencies.sh build tests; fi
start=$SECONDS
configure >/dev/null
build
built=$SECONDS status=0
run_tests || status=$?
if $full; then tests/parallel/run_full.sh --build-dir "$build_dir" || status=$?; fi
printf '  build %d s, tests %d s\n' $((built - start)) $((SECONDS - built))
exit "$status"
