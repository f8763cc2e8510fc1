#!/usr/bin/env bash
# Whole training steps on one GPU, by megatron's own log line: tokens/s, loss, memory, clock and power. Appends a JSON line for
# each case to the file that --output names. Needs a build with -DMEGATRON_CUDA=ON, and nvidia-smi.
#
#   benchmarks/gpu_step.sh [--megatron FILE] [--output FILE] [--commit ID] [--profile FILE] [CASE...]
#
# --megatron  the program; default build-cuda/bin/megatron.
# --output    default gpu_step.jsonl.
# --commit    what was built; default git's.
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
[ -n "$commit" ] || commit=$(git rev-parse --short HEAD)
warm_up=10 measured=20

# Flags of a case, and tokens of a step.
describe() {
  common=(--device cuda --mock-data --tokenizer-type NullTokenizer --attention-dropout 0 --hidden-dropout 0 --lr 1e-4
    --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --eval-iters 0 --log-interval 1)
  local gpt2=(--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024
    --vocab-size 50256 --micro-batch-size 32 --global-batch-size 32)
  case $1 in
    gpt2_124m) flags=("${gpt2[@]}" --bf16); tokens=$((32 * 1024)) ;;
    gpt2_124m_fp32) flags=("${gpt2[@]}"); tokens=$((32 * 1024)) ;;
    llama3_8b_8_layers)
      flags=(--num-layers 8 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
        --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 --position-embedding-type rope
        --rotary-base 500000 --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights
        --vocab-size 128255 --micro-batch-size 2 --global-batch-size 8 --bf16)
      tokens=$((8 * 4096)) ;;
  esac
}

median() { sort -g | awk '{x[NR] = $1} END {print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2}'; }

measure() { # CASE
  local log start sampler ms
  describe "$1"
  log=$(mktemp)
  start=$(date +%s.%N)
  "$megatron" pretrain_gpt "${common[@]}" "${flags[@]}" --train-iters $((warm_up + measured)) >"$log" 2>&1 &
  local run=$!
  nvidia-smi --query-gpu=clocks.sm,power.draw,memory.used --format=csv,noheader,nounits -lms 200 >"$log.gpu" &
  sampler=$!
  wait $run || { kill $sampler; tail -n 30 "$log"; fail "$1 failed"; }
  kill $sampler
  ms=$(sed -n 's/.*elapsed time per iteration (ms): \([0-9.]*\).*/\1/p' "$log" | tail -n $measured | median)
  local first_step
  first_step=$(date -d "$(sed -n 's/^ \[\([^]]*\)\] iteration *1\/.*/\1/p' "$log")" +%s.%N)
  # The upper half of the samples of power are those under load.
  awk -v case_="$1" -v ms="$ms" -v tokens="$tokens" -v commit="$commit" -v date="$(date +%F)" \
    -v loss="$(sed -n 's/.*lm loss: \([0-9.E+-]*\).*/\1/p' "$log" | tail -n 1)" \
    -v first="$(awk -v a="$start" -v b="$first_step" 'BEGIN {printf "%.1f", b - a}')" \
    -v gpu="$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)" \
    -v driver="$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)" -F ', *' '
    {clock[NR] = $1; power[NR] = $2; if ($3 > memory) memory = $3; total += $2}
    END {
      for (i = 1; i <= NR; ++i) if (power[i] >= total / NR) {c += clock[i]; p += power[i]; ++n}
      printf "{\"case\": \"%s\", \"tokens_per_second\": %.0f, \"step_ms\": %.2f, \"loss\": %s, \"seconds_to_first_step\": %s, ",
        case_, tokens / ms * 1e3, ms, loss, first
      printf "\"sm_mhz\": %.0f, \"watts\": %.0f, \"memory_used_mib\": %d, \"device\": \"%s\", \"driver\": \"%s\", ", c / n, p / n,
        memory, gpu, driver
      printf "\"commit\": \"%s\", \"date\": \"%s\"}\n", commit, date
    }' "$log.gpu" | tee -a "$output"
  grep -A 10 '^memory (MiB)' "$log" || true
  rm -f "$log" "$log.gpu"
}

profile() { # CASE
  describe "$1"
  { echo "$1"; ncu --metrics gpu__time_duration.sum --clock-control none --csv --print-units base "$megatron" pretrain_gpt \
    "${common[@]}" "${flags[@]}" --train-iters 2 | "$(dirname "$0")/kernel_table.py"; } >>"$profile"
}

for case_ in "${cases[@]}"; do
  if [ -n "$profile" ]; then profile "$case_"; else measure "$case_"; fi
done
