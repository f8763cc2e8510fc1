#!/usr/bin/env bash
# Llama-3-8B on four GPUs, tensor and sequence parallel.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

layout=(--nproc-per-node 4 --tensor-model-parallel-size 4 --sequence-parallel)
read -ra model <<<"$(llama3 32 4096)"
run_case "Llama-3-8B, TP4+SP, s4096, micro-batch 1" "${model[@]}" "${layout[@]}" --micro-batch-size 1 --global-batch-size 8
run_case "Llama-3-8B, TP4+SP, s4096, micro-batch 4" "${model[@]}" "${layout[@]}" --micro-batch-size 4 --global-batch-size 8
read -ra model <<<"$(llama3 32 8192)"
run_case "Llama-3-8B, TP4+SP, s8192, micro-batch 1" "${model[@]}" "${layout[@]}" --micro-batch-size 1 --global-batch-size 8
finish
