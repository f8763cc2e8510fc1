#!/usr/bin/env bash
# GPT-2 124M and 1558M on one GPU.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

read -ra model <<<"$(gpt2 12 768 12)"
run_case "GPT-2 124M, T1024" "${model[@]}" --micro-batch-size 32
run_case "GPT-2 124M, T1024, graph" "${model[@]}" --micro-batch-size 32 --cuda-graph-impl full_iteration
run_case "GPT-2 124M, T1024, micro-batch 1" "${model[@]}" --micro-batch-size 1
run_case "GPT-2 124M, T1024, micro-batch 1, graph" "${model[@]}" --micro-batch-size 1 --cuda-graph-impl full_iteration
read -ra model <<<"$(gpt2 48 1600 25)"
run_case "GPT-2 1558M, T1024" "${model[@]}" --micro-batch-size 16 --global-batch-size 32
finish
