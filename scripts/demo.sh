#!/usr/bin/env bash
# From a clone to text in the manner of Shakespeare in minutes: installs what is missing, builds, tokenizes, trains a Llama-style
# model of 5 million parameters and lets it write. Where nvidia-smi lists a GPU and nvcc is there, it builds for CUDA and trains
# on the GPU, else on the CPU's cores. A second call only trains and writes. In a bundle of scripts/gpu_bundle.sh nothing is
# installed and built, and no network is needed.
#
#   scripts/demo.sh [--short] [--steps N] [--prompt TEXT] [--cpu] [--no-install]
#
# --short   a few dozen steps of a smaller model, to see that everything works.
# --steps   how long to train; default 200, or 30 with --short.
# --prompt  how the sample begins; default "ROMEO:".
# --cpu     leave a GPU alone.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "demo: $*" >&2
  exit 2
}

short=false steps="" prompt="ROMEO:" install=true cpu=false
while [ $# -gt 0 ]; do
  case $1 in
    --short) short=true ;;
    --steps) [ $# -ge 2 ] || fail "--steps needs a value"; steps=$2; shift ;;
    --prompt) [ $# -ge 2 ] || fail "--prompt needs a value"; prompt=$2; shift ;;
    --cpu) cpu=true ;;
    --no-install) install=false ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) fail "unknown argument '$1'. Known: --short --steps --prompt --cpu --no-install" ;;
  esac
  shift
done
[ -n "$steps" ] || { if $short; then steps=30; else steps=200; fi; }
[[ $steps =~ ^[1-9][0-9]*$ ]] || fail "--steps '$steps' is not a positive number"

# CUDA is built into a directory of its own.
build=build device=cpu nvcc=""
# The kernels need compute capability 8.0 (Ampere) or later.
has_ampere() { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | grep -qE '^([89]|[1-9][0-9])\.'; }
has_gpu() { ! $cpu && command -v nvidia-smi >/dev/null && has_ampere; }
is_bundle=false
if [ -e BUILT_IN ] && [ -x bin/megatron ]; then
  is_bundle=true build=.
  if has_gpu; then device=cuda; fi
elif has_gpu; then
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  if [ -n "$nvcc" ]; then
    build=build-cuda device=cuda
  else
    echo "demo: there is a GPU, but no nvcc to build for it (package cuda-toolkit of NVIDIA, 12.8 or newer): training on the CPU" >&2
  fi
fi
megatron=$build/bin/megatron
demo=$build/demo
data=$demo/shakespeare
run=$demo/run

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

build() {
  if $is_bundle; then
    cat VERSION
    return
  fi
  # The tests of an existing build directory stay; a fresh one gets none, so that GoogleTest is not needed.
  if [ ! -e "$build/CMakeCache.txt" ]; then
    local cuda=()
    [ $device = cpu ] || cuda=(-DMEGATRON_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc")
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMEGATRON_TESTS=OFF -DMEGATRON_UNITY=ON "${cuda[@]}" >/dev/null
  fi
  cmake --build "$build" --target megatron
}

tokenize() {
  mkdir -p "$demo"
  [ -e "${data}_val_text_document.idx" ] || "$megatron" preprocess_data \
    --input data/tinyshakespeare.txt --input-format text --text-split 0.9 \
    --tokenizer-type ByteLevelTokenizer --append-eod --output-prefix "$data"
}

train() {
  local sizes=(--num-layers 6 --hidden-size 256 --ffn-hidden-size 768 --num-attention-heads 4 --seq-length 256)
  if $short; then
    sizes=(--num-layers 2 --hidden-size 64 --ffn-hidden-size 192 --num-attention-heads 4 --seq-length 64)
  fi
  # A CPU without instructions for bf16 is faster in fp32.
  local precision=(--bf16)
  if [ $device = cpu ] && ! grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then precision=(); fi
  rm -rf "$run"
  "$megatron" pretrain_gpt --device $device \
    "${sizes[@]}" --group-query-attention --num-query-groups 2 --max-position-embeddings 256 \
    --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear \
    --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 "${precision[@]}" \
    --tokenizer-type ByteLevelTokenizer \
    --train-data-path "${data}_train_text_document" --valid-data-path "${data}_val_text_document" \
    --data-cache-path "$demo/cache" \
    --micro-batch-size 16 --global-batch-size 16 --train-iters "$steps" \
    --lr 2e-3 --min-lr 2e-4 --lr-decay-style cosine --lr-warmup-iters $((steps / 15)) \
    --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 \
    --eval-interval $(((steps + 5) / 6)) --eval-iters 8 --log-interval 10 \
    --save "$run/checkpoint" --save-interval "$steps" \
    --tensorboard-dir "$run/tensorboard" --log-jsonl "$run/metrics.jsonl" --log-loss-curve "$run/loss.svg"
}

sample() {
  "$megatron" generate --device $device --load "$run/checkpoint" --prompt "$prompt" --num-tokens 240 --temperature 0.8
}

if $install && ! $is_bundle; then
  scripts/install_dependencies.sh build
  # Without it attention is slower.
  if [ $device = cuda ]; then scripts/install_dependencies.sh cuda || echo "demo: going on without cuDNN" >&2; fi
fi
say "Building $megatron"
build
say "Turning data/tinyshakespeare.txt into $data*.{bin,idx}"
tokenize
say "Training $steps steps on the $device device"
train
say "Sample"
sample
say "Done in $((SECONDS / 60)) min $((SECONDS % 60)) s"
cat <<TEXT
loss curve   $run/loss.svg
metrics      $run/metrics.jsonl (one JSON object per line), $run/tensorboard (tensorboard --logdir)
checkpoint   $run/checkpoint
more text    $megatron generate --load $run/checkpoint --prompt "JULIET:"
TEXT
