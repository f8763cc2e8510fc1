#!/usr/bin/env bash
# Mixtures of experts on one GPU, fp32 main parameters.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

read -ra model <<<"$(experts 8 2048 5632 8 2 16 16 31999)"
run_case "8 experts of 5632, top-2, 8 layers h2048, s4096" "${model[@]}" --micro-batch-size 4 --global-batch-size 16
run_case "8 experts of 5632, top-2, 8 layers h2048, s4096, one micro-batch" "${model[@]}" --micro-batch-size 4 --global-batch-size 4
read -ra model <<<"$(qwen3_moe 4 128)"
run_case "Qwen3-30B-A3B, 4 layers, s4096" "${model[@]}" --micro-batch-size 4 --global-batch-size 16
finish
