#!/usr/bin/env bash
# Llama-3-8B on two GPUs in each kind of layout, where there are not four: fp32 main parameters all along.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

overlap=(--tp-comm-overlap --tp-comm-overlap-delay-wgrad)
read -ra model <<<"$(llama3 32 4096)"
tensor=("${model[@]}" --nproc-per-node 2 --tensor-model-parallel-size 2 --sequence-parallel --global-batch-size 8)
run_case "Llama-3-8B, TP2+SP, s4096, micro-batch 1" "${tensor[@]}" --micro-batch-size 1
run_case "Llama-3-8B, TP2+SP, s4096, micro-batch 1, overlapped" "${tensor[@]}" "${overlap[@]}" --micro-batch-size 1
run_case "Llama-3-8B, TP2+SP, s4096, micro-batch 4" "${tensor[@]}" --micro-batch-size 4
run_case "Llama-3-8B, TP2+SP, s4096, micro-batch 4, overlapped" "${tensor[@]}" "${overlap[@]}" --micro-batch-size 4
run_case "Llama-3-8B, DP2, s4096" "${model[@]}" "${overlapped[@]}" --nproc-per-node 2 --micro-batch-size 1 --global-batch-size 16
# Output layer and loss take as long as 2.7 layers.
pipeline=("${model[@]}" --nproc-per-node 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 32)
run_case "Llama-3-8B, PP2, 1F1B 17/15" "${pipeline[@]}" --pipeline-model-parallel-layout "Et*17|t*15L"
run_case "Llama-3-8B, PP2, interleaved, balanced" "${pipeline[@]}" --pipeline-model-parallel-layout "Et*8|t*9|t*9|t*6L"
run_case "Llama-3-8B, PP2, ZB-V, balanced" "${pipeline[@]}" --pipeline-model-parallel-layout "Et*9|t*8|t*9|t*6L" --pipeline-schedule zb-v
run_case "Llama-3-8B, PP2, ZB-V, balanced, micro-batch 2" "${pipeline[@]}" --pipeline-model-parallel-layout "Et*9|t*8|t*9|t*6L" \
  --pipeline-schedule zb-v --micro-batch-size 2 --global-batch-size 64
finish
