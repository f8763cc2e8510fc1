#!/usr/bin/env bash
# The first 8 layers of Llama-3-8B on long sequences, and the whole of it with the optimizer in host memory: one GPU, fp32 main
# parameters.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

batch=(--micro-batch-size 1 --global-batch-size 2) offloaded=(--cpu-offloading-num-layers 4)
read -ra model <<<"$(llama3 8 32768)"
run_case "Llama-3-8B, 8 layers, s32768" "${model[@]}" "${batch[@]}"
run_case "Llama-3-8B, 8 layers, s32768, activations of 4 in host memory" "${model[@]}" "${batch[@]}" "${offloaded[@]}"
read -ra model <<<"$(llama3 8 65536)"
run_case "Llama-3-8B, 8 layers, s65536" "${model[@]}" "${batch[@]}"
run_case "Llama-3-8B, 8 layers, s65536, activations of 4 in host memory" "${model[@]}" "${batch[@]}" "${offloaded[@]}"
read -ra model <<<"$(llama3 32 4096)"
run_case "Llama-3-8B, 18 B, s4096, optimizer in host memory" "${model[@]}" --micro-batch-size 1 --global-batch-size 32 \
  --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d
finish
