#!/usr/bin/env bash
# Packs what a GPU machine without network and compilers needs to run the benchmarks: the program, the tests for GPUs, the
# libraries that they load (not those of the C library, of CUDA and of the driver), the scripts of benchmarks/, the demo and the
# data. At most 40 MiB.
#
#   scripts/gpu_bundle.sh [--build DIR] [--output FILE] [--level N]
#
# --build   build directory of a build with -DMEGATRON_CUDA=ON; default build-cuda. Tests that are not built are left out.
# --output  default build-cuda/megatron_gpu_bundle.tar.xz, which git ignores.
# --level   of xz: 0 is fast, 9 makes the smallest file; default 2.
#
# There: tar xJf megatron_gpu_bundle.tar.xz && cd megatron && benchmarks/gpu_batch.sh, or scripts/demo.sh
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "gpu_bundle: $*" >&2
  exit 2
}

build=build-cuda output="" level=2
while [ $# -gt 0 ]; do
  case $1 in
    --build) [ $# -ge 2 ] || fail "--build needs a value"; build=$2; shift ;;
    --output) [ $# -ge 2 ] || fail "--output needs a value"; output=$2; shift ;;
    --level) [ $# -ge 2 ] || fail "--level needs a value"; level=$2; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) fail "unknown argument '$1'. Known: --build --output --level" ;;
  esac
  shift
done
[ -n "$output" ] || output=$build/megatron_gpu_bundle.tar.xz
[ -x "$build/bin/megatron" ] || fail "$build/bin/megatron is missing: build it with -DMEGATRON_CUDA=ON"
readonly most_bytes=$((40 << 20))

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/megatron
mkdir -p "$bundle"/{bin,lib,tests/system,benchmarks/results,scripts}
strip -o "$bundle/bin/megatron.bin" "$build/bin/megatron"
programs=("$build/bin/megatron")
for test in cuda_kernels_test cuda_ops_test cuda_lm_head_loss_test cuda_memory_test cuda_training_test host_calls_test \
  memory_use_test comm_nccl_conformance comm_nccl_failure_test failing_nccl_ranks cuda_parallel_test \
  cuda_parallel_ranks cuda_orders_test; do
  if [ ! -x "$build/tests/$test" ]; then
    echo "gpu_bundle: without $test, which is not built" >&2
    continue
  fi
  strip -o "$bundle/tests/$test" "$build/tests/$test"
  programs+=("$build/tests/$test")
  echo "$(realpath "$build")/tests/$test tests/$test" >>"$bundle/BUILT_IN"
done
if [ -e "$build/bin/libcount_cuda_calls.so" ]; then
  cp "$build/bin/libcount_cuda_calls.so" "$bundle/tests/"
  echo "$(realpath "$build")/bin/libcount_cuda_calls.so tests/libcount_cuda_calls.so" >>"$bundle/BUILT_IN"
fi
echo "$(realpath "$build")/bin/megatron bin/megatron" >>"$bundle/BUILT_IN"
# What every machine has, or what must fit its driver, is left out. libstdc++ and the C library belong together with the
# machine's own loader.
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
  grep -Ev '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*|libcuda|libcudart|libcublas[^/]*|libcudnn[^/]*|libnccl|libcupti|libnvidia[^/]*)\.so' |
  sort -u | while read -r library; do cp -L "$library" "$bundle/lib/"; done
cat >"$bundle/bin/megatron" <<'START'
#!/usr/bin/env bash
# Starts the program with the libraries of this bundle.
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/megatron.bin" "$@"
START
chmod +x "$bundle/bin/megatron"
cp -r benchmarks/gpu_table benchmarks/gpu_batch.sh benchmarks/gpu_step.sh benchmarks/loss_curves.sh benchmarks/kernel_table.py \
  "$bundle/benchmarks/"
if [ -d benchmarks/tuned ]; then cp -r benchmarks/tuned "$bundle/benchmarks/"; fi
cp tests/system/{gpu_ranks,gpu_launchers,own_slurm,mpirun}.sh "$bundle/tests/system/"
cp scripts/demo.sh "$bundle/scripts/"
cp -r data "$bundle/"
"$bundle/bin/megatron" --version >"$bundle/VERSION"
# The programs have most of their code in common: xz has to look back over several of them.
tar -C "$work" -c megatron | xz "--lzma2=preset=$level,dict=128MiB" >"$output"
bytes=$(stat -c %s "$output")
[ "$bytes" -le "$most_bytes" ] || fail "$output has $((bytes >> 20)) MiB, more than $((most_bytes >> 20))"
echo "$output: $(cat "$bundle/VERSION"), $((bytes >> 10)) KiB"
