#!/usr/bin/env bash
# Training steps of one model on 1 rank and on 8 ranks as threads of one process, on the same cores: what layouts cost where they
# cannot gain. Layouts run by turns, the median of the rounds counts.
# Writes a table to benchmarks/results/cpu_ranks_<date>.md.
#
#   benchmarks/cpu_ranks.sh [--build DIR] [--rounds N]
#
# --build    build directory; default build.
# --rounds   how often each layout runs; default 3.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "cpu_ranks: $*" >&2
  exit 2
}

build=build rounds=3
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:-}; shift ;;
    --rounds) rounds=${2:-}; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) fail "unknown argument '$1'. Known: --build --rounds" ;;
  esac
  shift
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds '$rounds' is not a positive number"
megatron=$build/bin/megatron
[ -x "$megatron" ] || fail "$megatron is missing: build it"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

layouts=(
  "1 rank|"
  "DP 8|--nproc-per-node 8"
  "DP 8, distributed optimizer, overlap|--nproc-per-node 8 --use-distributed-optimizer --overlap-grad-reduce"
  "TP 8|--nproc-per-node 8 --tensor-model-parallel-size 8"
  "TP 8, sequence parallel|--nproc-per-node 8 --tensor-model-parallel-size 8 --sequence-parallel"
  "PP 8, 1F1B|--nproc-per-node 8 --pipeline-model-parallel-size 8"
  "TP 2, PP 2, DP 2|--nproc-per-node 8 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"
)

median() { sort -g | awk '{x[NR] = $1} END {print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2}'; }

# Median milliseconds of a step, the first two left out; and the last loss.
run() { # FLAG...
  "$megatron" pretrain_gpt --num-layers 8 --hidden-size 256 --num-attention-heads 8 --seq-length 256 \
    --max-position-embeddings 256 --attention-dropout 0 --hidden-dropout 0 --mock-data --tokenizer-type NullTokenizer \
    --vocab-size 8191 --micro-batch-size 1 --global-batch-size 32 --train-iters 7 --lr 1e-4 --eval-iters 0 \
    --log-interval 1 "$@" >"$work/log"
  sed -n 's/.*elapsed time per iteration (ms): \([0-9.]*\).*/\1/p' "$work/log" | tail -n +3 | median
}
last_loss() { sed -n 's/.* lm loss: \([^ ]*\).*/\1/p' "$work/log" | tail -n 1; }

compare() {
  echo "# 8 ranks as threads, $(date +%F)"
  echo
  echo "- $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores; load average at the start" \
    "$(cut -d' ' -f1 /proc/loadavg); megatron.cpp $version"
  echo "- GPT, 8 layers, 256 wide, sequences of 256, 32 micro-batches of 1, fp32, Adam; median of $rounds rounds"
  echo
  echo "| layout | tokens/s | of one rank | loss of step 7 |"
  echo "|---|---|---|---|"
  local layout name flags i
  for ((i = 0; i < rounds; ++i)); do
    for layout in "${layouts[@]}"; do
      name=${layout%%|*}
      read -ra flags <<<"${layout#*|}"
      run "${flags[@]}" >>"$work/ms $name"
      last_loss >"$work/loss $name"
    done
  done
  for layout in "${layouts[@]}"; do
    name=${layout%%|*}
    awk -v ms="$(median <"$work/ms $name")" -v one="$(median <"$work/ms 1 rank")" -v name="$name" \
      -v loss="$(cat "$work/loss $name")" \
      'BEGIN {printf "| %s | %.0f | %.0f %% | %s |\n", name, 32 * 256 / ms * 1e3, 100 * one / ms, loss}'
  done
}

version=$(git describe --always --dirty 2>/dev/null || echo unknown)  # before the table makes the tree dirty
mkdir -p benchmarks/results
compare | tee "benchmarks/results/cpu_ranks_$(date +%F).md"
