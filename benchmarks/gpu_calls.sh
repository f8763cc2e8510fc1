#!/usr/bin/env bash
# Calls of CUDA in a training step: those of a run of 22 steps less those of a run of 12, a tenth of it. Needs a build with
# -DMEGATRON_CUDA=ON, and CUPTI.
#
#   benchmarks/gpu_calls.sh [--megatron FILE] [--counter FILE] [FLAG...]
#
# --megatron  the program; default build-cuda/bin/megatron.
# --counter   default build-cuda/bin/libcount_cuda_calls.so.
# FLAG        of pretrain_gpt; default a model of 6 layers in bf16, two micro-batches a step.
set -euo pipefail

megatron=build-cuda/bin/megatron counter=build-cuda/bin/libcount_cuda_calls.so
while [ $# -gt 0 ]; do
  case $1 in
    --megatron) megatron=${2:-}; shift 2 ;;
    --counter) counter=${2:-}; shift 2 ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) break ;;
  esac
done
flags=("$@")
[ ${#flags[@]} -gt 0 ] || flags=(--num-layers 6 --hidden-size 256 --num-attention-heads 4 --seq-length 256
  --max-position-embeddings 256 --micro-batch-size 4 --global-batch-size 8 --lr 1e-4 --bf16 --mock-data
  --tokenizer-type NullTokenizer --vocab-size 50256)
for program in "$megatron" "$counter"; do
  [ -e "$program" ] || { echo "gpu_calls: $program is missing: build with -DMEGATRON_CUDA=ON, the target count_cuda_calls too" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for steps in 12 22; do
  CUDA_INJECTION64_PATH=$(realpath "$counter") COUNT_CUDA_CALLS_FILE=$work/$steps "$megatron" pretrain_gpt --device cuda \
    "${flags[@]}" --train-iters $steps --eval-iters 0 >"$work/log" || { tail -n 5 "$work/log"; exit 1; }
done
awk 'NR == FNR {before[$1] = $2; next} $2 != before[$1] {printf "%10.1f  %s\n", ($2 - before[$1]) / 10, $1}' "$work/12" "$work/22" |
  sort -rn
