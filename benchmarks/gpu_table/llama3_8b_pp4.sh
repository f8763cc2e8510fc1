#!/usr/bin/env bash
# Llama-3-8B on four GPUs, pipeline parallel, 32 micro-batches.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

# Output layer and loss take as long as 2.7 layers.
layout=(--nproc-per-node 4 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 32)
read -ra model <<<"$(llama3 32 4096)"
run_case "Llama-3-8B, PP4, 1F1B 8/9/9/6" "${model[@]}" "${layout[@]}" --pipeline-model-parallel-layout "Et*8|t*9|t*9|t*6L"
run_case "Llama-3-8B, PP4, interleaved, balanced" "${model[@]}" "${layout[@]}" \
  --pipeline-model-parallel-layout "Et*4|t*4|t*4|t*4|t*4|t*5|t*5|t*2L"
run_case "Llama-3-8B, PP4, ZB-H1 8/9/9/6" "${model[@]}" "${layout[@]}" --pipeline-model-parallel-layout "Et*8|t*9|t*9|t*6L" \
  --pipeline-schedule zb-h1
# The halves of the V lie on one rank: its first and its last stage share the head's time.
run_case "Llama-3-8B, PP4, ZB-V, balanced" "${model[@]}" "${layout[@]}" \
  --pipeline-model-parallel-layout "Et*4|t*4|t*4|t*4|t*4|t*5|t*5|t*2L" --pipeline-schedule zb-v
run_case "Llama-3-8B, PP4, ZB-V, balanced, micro-batch 2" "${model[@]}" "${layout[@]}" \
  --pipeline-model-parallel-layout "Et*4|t*4|t*4|t*4|t*4|t*5|t*5|t*2L" --pipeline-schedule zb-v --micro-batch-size 2 --global-batch-size 64
finish
