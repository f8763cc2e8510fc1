#!/usr/bin/env bash
# Loss curves of one run on 1, 2 and 4 ranks, data parallel, on one picture: the model and the data of scripts/demo.sh, 200 steps
# in fp32, the same batches everywhere. A run that is over is not run again.
#
#   benchmarks/loss_curves.sh [--megatron FILE] [--output DIR] [--device cpu|cuda] [--gpus N] [--with-cpu] [--steps N] [--short]
#
# --megatron  the program; default build-cuda/bin/megatron.
# --output    folder for DIR/losses.svg and the runs; default benchmarks/results/loss_curves.
# --device    default cuda.
# --gpus      how many to use; default those that nvidia-smi lists. Twice as many ranks share them: that shows their losses, and
#             says nothing of speed.
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

data=$output/shakespeare
mkdir -p "$output"
[ -e "${data}_text_document.idx" ] || "$megatron" preprocess_data --input data/tinyshakespeare.txt --input-format text \
  --tokenizer-type ByteLevelTokenizer --append-eod --output-prefix "$data" >"$output/data.log"

flags=("${sizes[@]}" --group-query-attention --num-query-groups 2 --position-embedding-type rope --normalization RMSNorm --swiglu
  --disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0
  --tokenizer-type ByteLevelTokenizer --data-path "${data}_text_document" --split "1,0,0" --data-cache-path "$output/cache"
  --micro-batch-size 4 --global-batch-size 16 --train-iters "$steps" --lr 2e-3 --lr-warmup-iters $((steps / 15)) --weight-decay 0.1
  --adam-beta2 0.95 --clip-grad 1.0 --eval-iters 0 --log-interval 1)

train() { # DEVICE RANKS LOG: each rank has a GPU, or is a thread
  "$megatron" pretrain_gpt --device "$1" --nproc-per-node "$2" "${flags[@]}" --log-jsonl "$3"
}

# CUDA's multi-process service lets programs compute on a GPU side by side; without it they take turns.
serve_gpus() {
  service=$(PATH=$PATH:/usr/local/nvidia/bin command -v nvidia-cuda-mps-control) || return 0
  CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) CUDA_MPS_LOG_DIRECTORY=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  "$service" -d
  trap 'echo quit | "$service"' EXIT
}

# NCCL refuses two ranks of a host that have one GPU, so as many ranks as there are GPUs are told to be a host of their own.
# Ranks have the variables of mpirun.
train_sharing_gpus() { # DEVICE RANKS LOG
  local rank ranks=() status=0
  serve_gpus
  for ((rank = 0; rank < $2; ++rank)); do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$2 OMPI_COMM_WORLD_LOCAL_RANK=$((rank % gpus)) \
      OMPI_COMM_WORLD_LOCAL_SIZE=$gpus PMIX_NAMESPACE=$$ MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 9000)) \
      NCCL_HOSTID=host_$((rank / gpus)) NCCL_SOCKET_IFNAME=lo \
      "$megatron" pretrain_gpt --device "$1" "${flags[@]}" --log-jsonl "$3" &
    ranks+=($!)
  done
  for rank in "${ranks[@]}"; do wait "$rank" || status=$?; done
  return $status
}

runs=()
run() { # NAME HOW DEVICE RANKS
  local name=$1 log=$output/${1// /_}.jsonl
  if ! grep -qs "\"iteration\":$steps,.*\"lm_loss\"" "$log"; then
    rm -f "$log"
    echo "$name"
    ("$2" "$3" "$4" "$log") >"${log%.jsonl}.log" 2>&1 || { tail -n 5 "${log%.jsonl}.log"; exit 1; }
  fi
  runs+=("$name=$log")
}

for ranks in 1 2 4; do
  if [ "$device" = cpu ] || [ "$ranks" -le "$gpus" ]; then
    run "$ranks ranks" train "$device" $ranks
  elif [ "$ranks" -eq $((2 * gpus)) ]; then
    run "$ranks ranks on $gpus GPUs" train_sharing_gpus "$device" $ranks
  fi
done
if $with_cpu; then run "the CPU" train cpu 1; fi
"$megatron" plot_losses --output "$output/losses.svg" --title "$steps steps on $device" --runs "${runs[@]}"
