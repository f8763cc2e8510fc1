#!/usr/bin/env bash
# All that a GPU machine is to show, in order of importance: tests on one GPU, tests of ranks on two and four, the choice of
# algorithms for matrix products, the rows of benchmarks/gpu_table for as many GPUs as there are, the loss curves. What has
# passed for this commit is not run again, so a batch that was killed goes on where it was. Works in a bundle of
# scripts/gpu_bundle.sh, and in a source tree with the tests built.
#
#   benchmarks/gpu_batch.sh [--build DIR] [--results DIR] [--gpus N] [--only NAME] [--list]
#
# --build    what has bin/megatron and tests/; default the bundle, or build-cuda in a source tree.
# --results  logs, one JSON line for each case, and what has been done; default benchmarks/results/batch.
# --gpus     how many to use; default those that nvidia-smi lists.
# --only     the items whose names contain NAME.
# --list     print names, limits and commands, and run nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "gpu_batch: $*" >&2
  exit 2
}

build="" results=benchmarks/results/batch gpus="" only="" is_list=false
while [ $# -gt 0 ]; do
  case $1 in
    --build) [ $# -ge 2 ] || fail "--build needs a value"; build=$2; shift ;;
    --results) [ $# -ge 2 ] || fail "--results needs a value"; results=$2; shift ;;
    --gpus) [ $# -ge 2 ] || fail "--gpus needs a value"; gpus=$2; shift ;;
    --only) [ $# -ge 2 ] || fail "--only needs a value"; only=$2; shift ;;
    --list) is_list=true ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) fail "unknown argument '$1'. Known: --build --results --gpus --only --list" ;;
  esac
  shift
done
[ -n "$build" ] || { if [ -e VERSION ]; then build=.; else build="build-cuda"; fi; }
[ -n "$gpus" ] || gpus=$({ nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l)
[[ $gpus =~ ^[0-9]+$ ]] || fail "--gpus '$gpus' is not a number"
megatron=$build/bin/megatron
[ -x "$megatron" ] || fail "$megatron is missing: build it with -DMEGATRON_CUDA=ON, or unpack a bundle"
commit=$("$megatron" --version | sed -n 's/.*(\(.*\))$/\1/p')
mkdir -p "$results"
tests=$build/tests
if [ -d "$build/lib" ]; then export LD_LIBRARY_PATH=$PWD/$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi

# Tests start programs by the paths at which they were built: in a bundle links lead from there to it.
if [ -e BUILT_IN ]; then
  while read -r original here; do
    if [ -e "$original" ] && [ ! -L "$original" ]; then
      fail "$original is not of this bundle, and its tests would start it. Move it away, or use its build: --build DIR"
    fi
    mkdir -p "$(dirname "$original")" && ln -sfn "$PWD/$here" "$original"
  done <BUILT_IN
fi

# What GoogleTest says of its tests: [  PASSED  ] 3 tests., or SKIPPED
number_of() { # PASSED|SKIPPED LOG
  local number
  number=$(sed -nE "s/^\\[  $1 +\\] ([0-9]+) tests?[.,].*/\\1/p" "$2" | tail -n 1)
  echo "${number:-0}"
}

status=0
item() { # NAME GPUS SECONDS COMMAND...
  local name=$1 needed=$2 seconds=$3
  shift 3
  if [[ $name != *"$only"* ]]; then return; fi
  if $is_list; then
    echo "$name, $needed GPUs, $seconds s: $*"
    return
  fi
  if [ "$gpus" -lt "$needed" ]; then
    echo "$name: skipped, it needs $needed GPUs"
    return
  fi
  if grep -qsx "$name $commit" "$results/done"; then
    echo "$name: done before"
    return
  fi
  local log=$results/${name// /_}.log start=$SECONDS code=0
  timeout --kill-after=10 "$seconds" "$@" >"$log" 2>&1 || code=$?
  local skipped note=""
  skipped=$(number_of SKIPPED "$log")
  if [ "$skipped" -gt 0 ]; then note=", without $skipped that skipped themselves"; fi
  if [ "$code" = 0 ] && [ "$skipped" -gt 0 ] && [ "$(number_of PASSED "$log")" = 0 ]; then code=77; fi
  case $code in
    0) echo "$name $commit" >>"$results/done"; echo "$name: passed in $((SECONDS - start)) s$note" ;;
    77) echo "$name: skipped itself, see $log" ;;
    75) echo "$name: goes on when it is called again, see $log"; status=1 ;;
    124 | 137) echo "$name: NOT OVER after $seconds s, see $log"; status=1 ;;
    *) echo "$name: FAILED with status $code, see $log"; tail -n 15 "$log"; status=1 ;;
  esac
}

row() { # NAME GPUS SECONDS
  item "row $1" "$2" "$3" benchmarks/gpu_table/"$1".sh --seconds $(($3 - 10)) --megatron "$megatron" \
    --output "$results/gpu_table.jsonl"
}

tune() { # NAME GPUS FLAG...
  local name=$1 needed=$2
  shift 2
  item "tune $name" "$needed" 240 "$megatron" bench gemm --tune --device cuda --seconds 0.15 --json "$results/tune.jsonl" \
    --name "$name" --attention-dropout 0 --hidden-dropout 0 "$@"
}

# compute-sanitizer's memcheck, each test in one of the shards, so that none runs too long.
memcheck() { # NAME SHARDS SECONDS TEST FILTER
  local name=$1 shards=$2 seconds=$3 sanitizer shard
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [ ! -x "$sanitizer" ]; then
    echo "memcheck of $name: skipped, compute-sanitizer is not here"
    return
  fi
  for ((shard = 0; shard < shards; ++shard)); do
    item "memcheck of $name, $((shard + 1)) of $shards" 1 "$seconds" env GTEST_TOTAL_SHARDS="$shards" GTEST_SHARD_INDEX=$shard \
      "$sanitizer" --tool memcheck --error-exitcode 1 "$tests/$4" --gtest_filter="$5"
  done
}

item "kernels" 1 300 "$tests/cuda_kernels_test"
item "ops" 1 300 "$tests/cuda_ops_test"
item "LM head" 1 120 "$tests/cuda_lm_head_loss_test"
item "memory" 1 120 "$tests/cuda_memory_test"
item "training" 1 300 "$tests/cuda_training_test"
item "orders of summation" 1 60 "$tests/cuda_orders_test"
item "host calls" 1 240 "$tests/host_calls_test"
item "memory in use" 2 180 "$tests/memory_use_test"
memcheck kernels 4 120 cuda_kernels_test '-*Millions*:*ManyRows*:*InitialValues*:*LargeProducts*'
memcheck ops 1 120 cuda_ops_test '*'
memcheck "LM head" 1 120 cuda_lm_head_loss_test '*'
for n in 2 4; do
  item "nccl conformance of $n" $n 180 "$tests/comm_nccl_conformance" $n
done
item "nccl failures" 2 240 "$tests/comm_nccl_failure_test"
item "parallel training" 2 600 "$tests/cuda_parallel_test"
item "ranks as users start them" 2 800 env GPU_RANKS_LOGS="$results/gpu_ranks" tests/system/gpu_ranks.sh "$megatron"
item "demo" 1 120 scripts/demo.sh --no-install
for n in 2 4; do
  item "bench comm on $n" $n 120 "$megatron" bench comm --nproc-per-node $n --device cuda --bf16 --json "$results/comm.jsonl" \
    --sizes 1048576 16777216 67108864 268435456 1073741824
done
# shellcheck source=benchmarks/gpu_table/models.sh
source benchmarks/gpu_table/models.sh
read -ra model <<<"$(llama3 8 4096)"
tune "Llama-3-8B, 8 layers" 1 "${model[@]}" --micro-batch-size 2 --global-batch-size 8
read -ra model <<<"$(gpt2 12 768 12)"
tune "GPT-2 124M" 1 "${model[@]}" --micro-batch-size 32
row start_up 1 240
row llama3_8b_8_layers 1 400
row gpt2 1 300
row llama3_8b 1 240
row qwen2 1 500
row experts 1 300
row long_context 1 500
read -ra model <<<"$(llama3 8 4096)"
tune "Llama-3-8B, TP4" 4 "${model[@]}" --nproc-per-node 4 --tensor-model-parallel-size 4 --sequence-parallel --micro-batch-size 4
row start_up_dp4 4 240
row llama3_8b_2_gpus 2 900
row experts_2_gpus 2 400
row long_context_2_gpus 2 500
row llama3_8b_dp4 4 480
row llama3_8b_tp4 4 600
row llama3_8b_pp4 4 700
item "loss curves" 1 400 benchmarks/loss_curves.sh --megatron "$megatron" --device cuda --output "$results/loss_curves" --gpus "$gpus"
exit $status
