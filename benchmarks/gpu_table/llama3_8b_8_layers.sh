#!/usr/bin/env bash
# The first 8 layers of Llama-3-8B with both embeddings, fp32 main parameters, on one GPU.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

read -ra model <<<"$(llama3 8 4096)"
run_case "Llama-3-8B, 8 layers, s4096, micro-batch 2" "${model[@]}" --micro-batch-size 2 --global-batch-size 8
run_case "Llama-3-8B, 8 layers, s4096, micro-batch 4" "${model[@]}" --micro-batch-size 4 --global-batch-size 8
finish
