# shellcheck shell=bash disable=SC2034
# What the scripts of this folder share; each of them is one row of the table of GPU goals and sources this file.
#
#   benchmarks/gpu_table/ROW.sh [--megatron FILE] [--output FILE] [--commit ID] [FLAG...]
#
# A case that the output file has for this commit is not run again, so a script that was killed goes on where it was.
# Random tokens, 10 warm-up steps, the median of 20, whole steps with the optimizer, no recompute, no dropout.
#
# --megatron  the program; default build-cuda/bin/megatron.
# --output    default benchmarks/results/gpu_table.jsonl.
# --commit    what was built; default what the program says.
# FLAG        of megatron bench step, behind those of the case: --steps 5 for a look.
set -euo pipefail

megatron=build-cuda/bin/megatron output=benchmarks/results/gpu_table.jsonl commit="" extra=()
while [ $# -gt 0 ]; do
  case $1 in
    --megatron) megatron=${2:-}; shift 2 ;;
    --output) output=${2:-}; shift 2 ;;
    --commit) commit=${2:-}; shift 2 ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) extra+=("$1"); shift ;;
  esac
done
[ -x "$megatron" ] || { echo "gpu_table: $megatron is missing: build with -DMEGATRON_CUDA=ON, or give --megatron" >&2; exit 2; }
[ -n "$commit" ] || commit=$("$megatron" --version | sed -n 's/.*(\(.*\))$/\1/p')

readonly seconds_of_a_case=240

# A case of the row. A case that fails is told, and the next one runs; the script then ends with 1.
status=0
run_case() { # NAME FLAG...
  local name=$1
  shift
  if grep -qs "\"name\":\"$name\".*\"commit\":\"$commit\".*\"case\":\"step\"" "$output"; then
    echo "$name: $output has it for $commit"
    return
  fi
  echo "$name"
  timeout $seconds_of_a_case "$megatron" bench step --name "$name" --commit "$commit" --json "$output" --device cuda \
    --lr 1e-5 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --attention-dropout 0 --hidden-dropout 0 "$@" "${extra[@]}" ||
    { echo "$name: FAILED with status $?" >&2; status=1; }
}

finish() { exit $status; }

# fp32 states with the distributed optimizer: 6 + 12 / DP bytes a parameter. 12 bytes with bf16 moments and remainders.
readonly twelve_bytes=(--use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16)
readonly overlapped=(--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)

llama3() { # LAYERS SEQUENCE
  echo --num-layers "$1" --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention \
    --num-query-groups 8 --seq-length "$2" --position-embedding-type rope --rotary-base 500000 --normalization RMSNorm \
    --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --tokenizer-type NullTokenizer --vocab-size 128255 --bf16
}

gpt2() { # LAYERS HIDDEN HEADS
  echo --num-layers "$1" --hidden-size "$2" --num-attention-heads "$3" --seq-length 1024 --tokenizer-type NullTokenizer \
    --vocab-size 50256 --bf16
}

qwen2() { # LAYERS HIDDEN FFN HEADS GROUPS VOCABULARY
  echo --num-layers "$1" --hidden-size "$2" --ffn-hidden-size "$3" --num-attention-heads "$4" --group-query-attention \
    --num-query-groups "$5" --seq-length 1024 --position-embedding-type rope --rotary-base 1000000 --normalization RMSNorm \
    --swiglu --disable-bias-linear --add-qkv-bias --tokenizer-type NullTokenizer --vocab-size "$6" --bf16
}
