#!/usr/bin/env bash
# A test that skips all of its cases has not passed: the batch says so, and tries it again. One that skips some says how many.
# The tests are stand-ins here.
#
#   tests/benchmarks/gpu_batch_test.sh
set -euo pipefail
batch=$(dirname "$0")/../../benchmarks/gpu_batch.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build/bin" "$work/build/tests"

stand_in() { # FILE LINE...
  local file=$work/build/$1
  shift
  {
    echo "#!/bin/sh"
    printf 'echo "%s"\n' "$@"
  } >"$file"
  chmod +x "$file"
}

# expect PATTERN: the item "memory" ends so
expect() {
  local out
  out=$("$batch" --build "$work/build" --results "$work/results" --gpus 1 --only memory | sed -n 1p)
  # shellcheck disable=SC2053  # a pattern
  [[ $out == $1 ]] || { echo "gpu_batch_test: '$out', not '$1'" >&2; exit 1; }
}

stand_in bin/megatron "megatron 0.1.0 (abc)"
stand_in tests/cuda_memory_test "[==========] Running 2 tests from 1 test suite." "[  PASSED  ] 0 tests." "[  SKIPPED ] 2 tests, listed below:"
expect "memory: skipped itself, see *"
expect "memory: skipped itself, see *"
stand_in tests/cuda_memory_test "[==========] Running 2 tests from 1 test suite." "[  PASSED  ] 1 test." "[  SKIPPED ] 1 test, listed below:"
expect "memory: passed in * s, without 1 that skipped themselves"
expect "memory: done before"
echo "4 outcomes"
