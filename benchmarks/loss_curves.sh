#!/usr/bin/env bash
# Loss curves of one run on 1, 2 and 4 ranks, data parallel, on one picture: the model and the data of scripts/demo.sh, 200 steps
# in fp32, the same batches everywhere. A run that is over is not run again.
#
#   benchmarks/loss_curves.sh [--megatron FILE] [--output DIR] [--device cpu|cuda] [--gpus N] [--with-cpu] [--steps N] [--short]
#
# --megatron  the program; default build-cuda/bin/megatron.
# --output    folder for DIR/losses.svg and the runs; default benchmarks/results/loss_curves.
# --device    default cuda.
# --gpus      how many to use; default those that nvidia-smi lists.
# --with-cpu  beside those on GPUs one rank on the CPU.
# --steps     default 200.
# --short     a smaller model.
set -euo pipefail
cd "$(dirname "$0")/.."

megatron=build-cuda/bin/megatron output=benchmarks/results/loss_curves device=cuda gpus="" with_cpu=false steps=200
sizes=(--num-layers 6 --hidden-size 256 --ffn-hidden-size 768 --num-attention-heads 4 --seq-length 256 --max-position-embeddings 256)
while [ $# -gt 0 ]; do
  case $1 in
    --megatron) megatron=${2:-}; shift ;;
    --output) output=${2:-}; shift ;;
    --device) device=${2:-}; shift ;;
    --gpus) gpus=${2:-}; shift ;;
    --with-cpu) with_cpu=true ;;
    --steps) steps=${2:-}; shift ;;
    --short)
      sizes=(--num-layers 2 --hidden-size 32 --ffn-hidden-size 96 --num-attention-heads 4 --seq-length 32
        --max-position-embeddings 32) ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "loss_curves: unknown argument '$1'. Known: --megatron --output --device --gpus --with-cpu --steps --short" >&2; exit 2 ;;
  esac
  shift
done
[ -x "$megatron" ] || { echo "loss_curves: $megatron is missing: build it, or give --megatron" >&2; exit 2; }

[ -n "$gpus" ] || gpus=$({ nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l)
[ "$device" = cpu ] || [ "$gpus" -gt 0 ] || { echo "loss_curves: no GPU answers: give --gpus N or --device cpu" >&2; exit 2; }

data=$output/shakespeare
mkdir -p "$output"
[ -e "${data}_text_document.idx" ] || "$megatron" preprocess_data --input data/tinyshakespeare.txt --input-format text \
  --tokenizer-type ByteLevelTokenizer --append-eod --output-prefix "$data" >"$output/data.log"

flags=("${sizes[@]}" --group-query-attention --num-query-groups 2 --position-embedding-type rope --normalization RMSNorm --swiglu
  --disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0
  --tokenizer-type ByteLevelTokenizer --data-path "${data}_text_document" --split "1,0,0" --data-cache-path "$output/cache"
  --micro-batch-size 4 --global-batch-size 16 --train-iters "$steps" --lr 2e-3 --lr-warmup-iters $((steps / 15)) --weight-decay 0.1
  --adam-beta2 0.95 --clip-grad 1.0 --eval-iters 0 --log-interval 1)

runs=()
run() { # NAME DEVICE RANKS
  local name=$1 log=$output/${1// /_}.jsonl
  if ! grep -qs "\"iteration\":$steps,.*\"lm_loss\"" "$log"; then
    rm -f "$log"
    echo "$name"
    "$megatron" pretrain_gpt --device "$2" --nproc-per-node "$3" "${flags[@]}" --log-jsonl "$log" \
      >"${log%.jsonl}.log" 2>&1 || { tail -n 5 "${log%.jsonl}.log"; exit 1; }
  fi
  runs+=("$name=$log")
}

for ranks in 1 2 4; do
  if [ "$device" = cuda ] && [ "$ranks" -gt "$gpus" ]; then continue; fi
  run "$ranks ranks" "$device" $ranks
done
if $with_cpu; then run "the CPU" cpu 1; fi
"$megatron" plot_losses --output "$output/losses.svg" --title "$steps steps on $device" --runs "${runs[@]}"
