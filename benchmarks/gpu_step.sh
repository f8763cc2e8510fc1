#!/usr/bin/env bash
# Whole training steps on one GPU by megatron bench step: tokens/s, share of the kernel ceiling, loss, memory, clock and power.
# Appends a JSON line for each case to the file that --output names. Needs a build with -DMEGATRON_CUDA=ON.
#
#   benchmarks/gpu_step.sh [--megatron FILE] [--output FILE] [--commit ID] [--profile FILE] [CASE...]
#
# --megatron  the program; default build-cuda/bin/megatron.
# --output    default gpu_step.jsonl.
# --commit    what was built; default what the program says.
# --profile   instead: appends a table of the kernels of one step to FILE, from ncu; takes a minute a case.
# CASE        gpt2_124m, llama3_8b_8_layers or gpt2_124m_fp32; default the first two.
set -euo pipefail

fail() {
  echo "gpu_step: $*" >&2
  exit 2
}

megatron=build-cuda/bin/megatron output=gpu_step.jsonl commit="" profile="" cases=()
while [ $# -gt 0 ]; do
  case $1 in
    --megatron) megatron=${2:-}; shift ;;
    --output) output=${2:-}; shift ;;
    --commit) commit=${2:-}; shift ;;
    --profile) profile=${2:-}; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    gpt2_124m | gpt2_124m_fp32 | llama3_8b_8_layers) cases+=("$1") ;;
    *) fail "unknown argument '$1'. Known: --megatron --output --commit --profile and cases" ;;
  esac
  shift
done
[ ${#cases[@]} -gt 0 ] || cases=(gpt2_124m llama3_8b_8_layers)
[ -x "$megatron" ] || fail "$megatron is missing: build with -DMEGATRON_CUDA=ON"
# Flags of a case.
describe() {
  common=(--device cuda --tokenizer-type NullTokenizer --attention-dropout 0 --hidden-dropout 0 --lr 1e-4
    --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0)
  local gpt2=(--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024
    --vocab-size 50256 --micro-batch-size 32 --global-batch-size 32)
  case $1 in
    gpt2_124m) flags=("${gpt2[@]}" --bf16) ;;
    gpt2_124m_fp32) flags=("${gpt2[@]}") ;;
    llama3_8b_8_layers)
      flags=(--num-layers 8 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
        --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 --position-embedding-type rope
        --rotary-base 500000 --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights
        --vocab-size 128255 --micro-batch-size 2 --global-batch-size 8 --bf16) ;;
  esac
}

measure() { # CASE
  local of_commit=()
  [ -z "$commit" ] || of_commit=(--commit "$commit")
  describe "$1"
  "$megatron" bench step --name "$1" --json "$output" "${of_commit[@]}" "${common[@]}" "${flags[@]}"
}

profile() { # CASE
  describe "$1"
  { echo "$1"; ncu --metrics gpu__time_duration.sum --clock-control none --csv --print-units base "$megatron" pretrain_gpt \
    "${common[@]}" "${flags[@]}" --mock-data --eval-iters 0 --train-iters 2 | "$(dirname "$0")/kernel_table.py"; } >>"$profile"
}

for case_ in "${cases[@]}"; do
  if [ -n "$profile" ]; then profile "$case_"; else measure "$case_"; fi
done
