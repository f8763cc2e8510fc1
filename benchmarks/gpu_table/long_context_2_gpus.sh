#!/usr/bin/env bash
# The first 8 layers of Llama-3-8B on sequences that two GPUs share, beside one GPU with as many tokens and as much attention: half
# of the sequences.
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

both=("${overlapped[@]}" --nproc-per-node 2 --context-parallel-size 2 --micro-batch-size 1 --global-batch-size 4)
one=(--micro-batch-size 1 --global-batch-size 2)
read -ra model <<<"$(llama3 8 32768)"
run_case "Llama-3-8B, 8 layers, s32768, one GPU" "${model[@]}" "${one[@]}"
run_case "Llama-3-8B, 8 layers, s32768, CP2, p2p" "${model[@]}" "${both[@]}"
run_case "Llama-3-8B, 8 layers, s32768, CP2, a2a" "${model[@]}" "${both[@]}" --cp-comm-type a2a
run_case "Llama-3-8B, 8 layers, s32768, CP2, all_gather" "${model[@]}" "${both[@]}" --cp-comm-type all_gather
read -ra model <<<"$(llama3 8 65536)"
run_case "Llama-3-8B, 8 layers, s65536, one GPU" "${model[@]}" "${one[@]}"
run_case "Llama-3-8B, 8 layers, s65536, CP2, p2p" "${model[@]}" "${both[@]}"
run_case "Llama-3-8B, 8 layers, s65536, CP2, a2a" "${model[@]}" "${both[@]}" --cp-comm-type a2a
finish
