#!/usr/bin/env bash
# Shapes of Qwen2.5 on one GPU, in micro-batches as large as fit in 141 GB. With 8 bytes a parameter 524,288 tokens a step, as the
# rows of llmq that they stand beside, and fewer steps where 30 would take more than a case may; of the largest model, 65,536.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

read -ra model <<<"$(qwen2 24 896 4864 14 2 151935)"
run_case "Qwen2.5-0.5B, T1024" "${model[@]}" --micro-batch-size 64 --global-batch-size 128
run_case "Qwen2.5-0.5B, T1024, 8 B a parameter, 512 sequences" "${model[@]}" "${eight_bytes[@]}" --micro-batch-size 64 \
  --global-batch-size 512
read -ra model <<<"$(qwen2 28 1536 8960 12 2 151935)"
run_case "Qwen2.5-1.5B, T1024, 12 B a parameter" "${model[@]}" "${ten_bytes[@]}" --micro-batch-size 32 \
  --global-batch-size 128
run_case "Qwen2.5-1.5B, T1024, 8 B a parameter, 512 sequences" "${model[@]}" "${eight_bytes[@]}" --micro-batch-size 32 \
  --global-batch-size 512 --warm-up 5 --steps 15
read -ra model <<<"$(qwen2 28 3584 18944 28 4 152063)"
run_case "Qwen2.5-7B, T1024, 12 B a parameter" "${model[@]}" "${ten_bytes[@]}" --untie-embeddings-and-output-weights \
  --micro-batch-size 8 --global-batch-size 64
run_case "Qwen2.5-7B, T1024, 8 B a parameter" "${model[@]}" "${eight_bytes[@]}" --untie-embeddings-and-output-weights \
  --micro-batch-size 16 --global-batch-size 64
finish
