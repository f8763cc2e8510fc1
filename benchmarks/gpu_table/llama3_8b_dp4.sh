#!/usr/bin/env bash
# Llama-3-8B on four GPUs, data parallel with the distributed optimizer, fp32 states.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

read -ra model <<<"$(llama3 32 4096)"
run_case "Llama-3-8B, DP4, s4096" "${model[@]}" "${overlapped[@]}" --nproc-per-node 4 --micro-batch-size 2 --global-batch-size 32
read -ra model <<<"$(llama3 32 8192)"
run_case "Llama-3-8B, DP4, s8192" "${model[@]}" "${overlapped[@]}" --nproc-per-node 4 --micro-batch-size 1 --global-batch-size 16
finish
