#!/usr/bin/env bash
# Training steps on this machine's CPU beside PyTorch's, in one run: both programs alternate, the median of the rounds counts.
# Writes a table to benchmarks/results/cpu_<date>.md.
#
#   MEGATRON_REFERENCE_PYTHON=python3 benchmarks/cpu_step.sh [--build DIR] [--rounds N] [--no-bf16] [--no-long] [--no-nanogpt]
#
# All programs use as many threads as this one may use cores: `taskset -c 0,1 benchmarks/cpu_step.sh` compares on two.
#
# --build       build directory; default build.
# --rounds      how often both run; default 3.
# --no-bf16     only fp32.
# --no-long     only sequences of 64 tokens, not of 512.
# --no-nanogpt  leave out the character model of tiny Shakespeare.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "cpu_step: $*" >&2
  exit 2
}

build=build rounds=3 dtypes=(fp32 bf16) long=true nanogpt=true
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:-}; shift ;;
    --rounds) rounds=${2:-}; shift ;;
    --no-bf16) dtypes=(fp32) ;;
    --no-long) long=false ;;
    --no-nanogpt) nanogpt=false ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) fail "unknown argument '$1'. Known: --build --rounds --no-bf16 --no-long --no-nanogpt" ;;
  esac
  shift
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds '$rounds' is not a positive number"
python=${MEGATRON_REFERENCE_PYTHON:-python3}
megatron=$build/bin/megatron
[ -x "$megatron" ] || fail "$megatron is missing: build it"
"$python" -c 'import torch' 2>/dev/null || fail "$python has no torch: set MEGATRON_REFERENCE_PYTHON"
threads=$(nproc) # those that this process may use, or OMP_NUM_THREADS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

median() { sort -g | awk '{x[NR] = $1} END {print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2}'; }

# Median milliseconds of the lines of a training log, the first $1 left out.
step_ms() { sed -n 's/.*elapsed time per iteration (ms): \([0-9.]*\).*/\1/p' | tail -n +$(($1 + 1)) | median; }

gpt2() { # SEQUENCE STEPS [FLAG...]
  local sequence=$1 steps=$2
  shift 2
  "$megatron" pretrain_gpt --num-layers 12 --hidden-size 768 --num-attention-heads 12 \
    --seq-length "$sequence" --max-position-embeddings 1024 --attention-dropout 0 --hidden-dropout 0 \
    --mock-data --tokenizer-type NullTokenizer --vocab-size 50256 --micro-batch-size 4 --global-batch-size 4 \
    --train-iters "$steps" --lr 1e-4 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --eval-iters 0 \
    --log-interval 1 --num-threads "$threads" "$@"
}

torch_ms() { "$python" benchmarks/torch_gpt.py --threads "$threads" "$@" | sed -n 's/.* ms\/step \([0-9.]*\) .*/\1/p'; }

# Milliseconds of a step's matrix products alone.
products_ms() { # SEQUENCE [FLAG...]
  local sequence=$1
  shift
  rm -f "$work/gemm.jsonl"
  "$megatron" bench gemm --seq-length "$sequence" --micro-batch-size 4 --repeats 3 --num-threads "$threads" --device cpu \
    --json "$work/gemm.jsonl" "$@" >/dev/null
  sed -n 's/.*"case":"total","seconds":\([0-9.e-]*\).*/\1/p' "$work/gemm.jsonl" | awk '{print $1 * 1e3}'
}

# A row: both programs, and the products alone.
compare_gpt2() { # SEQUENCE fp32|bf16 STEPS
  local sequence=$1 dtype=$2 steps=$3 flag=()
  [ "$dtype" = fp32 ] || flag=(--bf16)
  : >"$work/ours"; : >"$work/torch"; : >"$work/products"
  for ((round = 0; round < rounds; ++round)); do
    gpt2 "$sequence" $((steps + 2)) "${flag[@]}" | step_ms 2 >>"$work/ours"
    torch_ms --sequence "$sequence" --max-positions 1024 --fused-adamw --warmup 2 --steps "$steps" "${flag[@]}" \
      >>"$work/torch"
    products_ms "$sequence" "${flag[@]}" >>"$work/products"
  done
  # Best of the rounds for the ceiling: it is a bound.
  awk -v ours="$(median <"$work/ours")" -v torch="$(median <"$work/torch")" \
    -v products="$(sort -g "$work/products" | head -n 1)" -v s="$sequence" -v dtype="$dtype" 'BEGIN {
      tokens = 4 * s
      products_gflop = 6 * (12 * 12 * 768 * 768 + 768 * 50304) * tokens * 1e-9
      gflop = products_gflop + 6 * 12 * 768 * s * tokens * 1e-9
      printf "| GPT-2 124M 4 x %d %s | %.0f | %.0f | **%.2f** | %.0f | %.0f | %.3f | %.0f | %.0f %% |\n", s, dtype,
        tokens / ours * 1e3, tokens / torch * 1e3, torch / ours, ours, torch, gflop / ours, products_gflop / products * 1e3,
        100 * products / ours
    }'
}

prepare_characters() {
  "$megatron" preprocess_data --input data/tinyshakespeare.txt --input-format text --text-split 0.9 \
    --tokenizer-type CharTokenizer --make-char-vocab --vocab-file "$work/characters.txt" \
    --output-prefix "$work/shakespeare" >/dev/null
}

characters() {
  "$megatron" pretrain_gpt --num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 \
    --max-position-embeddings 64 --attention-dropout 0 --hidden-dropout 0 --disable-bias-linear \
    --tokenizer-type CharTokenizer --vocab-file "$work/characters.txt" --no-pad-vocab-size \
    --train-data-path "$work/shakespeare_train_text_document" --data-cache-path "$work/cache" \
    --valid-data-path "$work/shakespeare_val_text_document" \
    --micro-batch-size 12 --global-batch-size 12 --train-iters 600 --lr 1e-3 --weight-decay 0.1 --adam-beta2 0.99 \
    --clip-grad 1.0 --eval-iters 0 --log-interval 100 --num-threads "$threads"
}

compare_characters() {
  prepare_characters
  : >"$work/ours"; : >"$work/torch"; : >"$work/fused"
  local shape=(--layers 4 --hidden 128 --heads 4 --sequence 64 --batch 12 --no-bias --vocab 65 --lr 1e-3 --beta2 0.99
    --text data/tinyshakespeare.txt --warmup 50 --steps 200)
  for ((round = 0; round < rounds; ++round)); do
    characters | step_ms 1 >>"$work/ours"
    torch_ms "${shape[@]}" >>"$work/torch"
    torch_ms "${shape[@]}" --fused-adamw >>"$work/fused"
  done
  awk -v ours="$(median <"$work/ours")" -v torch="$(median <"$work/torch")" -v fused="$(median <"$work/fused")" 'BEGIN {
    printf "\nnanoGPT'"'"'s character model on the CPU (4 layers, 4 heads, 128 wide, context 64, batch 12, fp32, tiny Shakespeare):\n"
    printf "**%.1f** steps/s, PyTorch eager %.1f (ratio **%.2f**), with fused AdamW %.1f (ratio %.2f).\n", 1e3 / ours,
      1e3 / torch, torch / ours, 1e3 / fused, fused / ours
  }'
}

# Seconds from exec until the first step begins: the time of its log line less its duration.
start_up_seconds() {
  local start line end ms
  start=$(date +%s%N)
  line=$(gpt2 64 1 | grep 'elapsed time per iteration')
  end=${line%%]*} # " [2026-01-31 12:00:00.123456"
  end=$(date -d "${end#*[}" +%s%N)
  ms=$(step_ms 0 <<<"$line")
  awk -v start="$start" -v end="$end" -v ms="$ms" 'BEGIN {printf "%.2f\n", (end - start) * 1e-9 - ms * 1e-3}'
}

compare() {
  echo "# Training steps on a CPU, $(date +%F)"
  echo
  echo "- $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $threads of $(grep -c '^processor' /proc/cpuinfo) cores" \
    "(family $(awk '/^cpu family/ {print $4; exit}' /proc/cpuinfo), model" \
    "$(awk '/^model\t/ {print $3; exit}' /proc/cpuinfo)); load average at the start $(cut -d' ' -f1 /proc/loadavg)"
  echo "- megatron.cpp $(git describe --always --dirty 2>/dev/null || "$megatron" --version);" \
    "PyTorch $("$python" -c 'import torch; print(torch.__version__)'), eager, fused AdamW, bf16 by autocast with fp32 weights"
  echo "- whole steps (batch, forward, backward, clipping, AdamW), no dropout; median of $rounds rounds, both programs by turns"
  echo "- TFLOP/s: 6 operations per weight of a matrix and token, and causal attention (6 x layers x width x sequence)."
  echo "  GEMM rate: the linear layers' products alone, best call (megatron bench gemm). Share of it: their time / time of the step"
  echo
  echo "| case | tokens/s | PyTorch | ratio | ms a step | PyTorch | TFLOP/s | GEMM rate (GFLOP/s) | share of it |"
  echo "|---|---|---|---|---|---|---|---|---|"
  for dtype in "${dtypes[@]}"; do compare_gpt2 64 "$dtype" 5; done
  if $long; then for dtype in "${dtypes[@]}"; do compare_gpt2 512 "$dtype" 2; done; fi
  if $nanogpt; then compare_characters; fi
  echo
  start_up_seconds >/dev/null # warms the file cache
  echo "Start-up, exec until the first step of the 124M model begins: $(for ((i = 0; i < rounds; ++i)); do
    start_up_seconds
  done | median) s."
}

mkdir -p benchmarks/results
compare | tee "$work/result.md"
mv "$work/result.md" "benchmarks/results/cpu_$(date +%F).md"
