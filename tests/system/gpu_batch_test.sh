#!/usr/bin/env bash
# A test that skips all of its cases has not passed: the batch says so, and tries it again. One that skips some says how many.
# Tests of a bundle start the programs of this bundle, not those of one that was unpacked before. The tests are stand-ins here.
#
#   tests/system/gpu_batch_test.sh
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

# A bundle: what was built at $work/built is in it, and an older bundle that is gone has left its link there.
bundle=$work/bundle
mkdir -p "$bundle/benchmarks" "$work/built"
cp "$batch" "$bundle/benchmarks/"
ln -s "$(realpath "$(dirname "$batch")/gpu_table")" "$bundle/benchmarks/gpu_table"
mv "$work/build/bin" "$work/build/tests" "$bundle/"
ln -s "$work/older/bin/megatron" "$work/built/megatron"
echo "$work/built/megatron bin/megatron" >"$bundle/BUILT_IN"
touch "$bundle/VERSION"
"$bundle/benchmarks/gpu_batch.sh" --gpus 0 --only none >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
[ "$("$work/built/megatron")" = "megatron 0.1.0 (abc)" ] || { echo "gpu_batch_test: the link leads elsewhere" >&2; exit 1; }
rm "$work/built/megatron"
echo "another program" >"$work/built/megatron"
if "$bundle/benchmarks/gpu_batch.sh" --gpus 0 --only none >"$work/log" 2>&1 ||
  ! grep -q "built/megatron is not of this bundle" "$work/log"; then
  echo "gpu_batch_test: tests would start another program" >&2
  exit 1
fi
echo "4 outcomes, 3 links"
