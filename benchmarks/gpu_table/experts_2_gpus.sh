#!/usr/bin/env bash
# Experts shared by two GPUs, beside one GPU with as many experts.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

batch=(--micro-batch-size 2 --global-batch-size 8) both=(--nproc-per-node 2 --expert-model-parallel-size 2 "${overlapped[@]}")
of_both=(--micro-batch-size 2 --global-batch-size 16)
read -ra model <<<"$(mixtral 4 4)"
run_case "Mixtral, 4 layers, 4 experts, one GPU" "${model[@]}" "${batch[@]}"
read -ra model <<<"$(mixtral 4 8)"
run_case "Mixtral, 4 layers, 8 experts, EP2, alltoall" "${model[@]}" "${both[@]}" "${of_both[@]}" --moe-token-dispatcher-type alltoall
run_case "Mixtral, 4 layers, 8 experts, EP2, allgather" "${model[@]}" "${both[@]}" "${of_both[@]}" --moe-token-dispatcher-type allgather
read -ra model <<<"$(qwen3_moe 4 64)"
run_case "Qwen3-30B-A3B, 4 layers, 64 experts, one GPU" "${model[@]}" "${batch[@]}"
read -ra model <<<"$(qwen3_moe 4 128)"
run_case "Qwen3-30B-A3B, 4 layers, 128 experts, EP2, alltoall" "${model[@]}" "${both[@]}" "${of_both[@]}" --moe-token-dispatcher-type alltoall
finish
