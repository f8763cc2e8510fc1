#!/usr/bin/env bash
# Llama-3-8B on one GPU, 10 and 8 bytes a parameter, 65,536 tokens a step.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

read -ra model <<<"$(llama3 32 4096)"
run_case "Llama-3-8B, s4096, 12 B a parameter" "${model[@]}" "${ten_bytes[@]}" --micro-batch-size 2 --global-batch-size 16
run_case "Llama-3-8B, s4096, 8 B a parameter, micro-batch 2" "${model[@]}" "${eight_bytes[@]}" --micro-batch-size 2 --global-batch-size 16
run_case "Llama-3-8B, s4096, 8 B a parameter" "${model[@]}" "${eight_bytes[@]}" --micro-batch-size 4 --global-batch-size 16
finish
