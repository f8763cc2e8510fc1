#!/usr/bin/env bash
# From launch to the end of the first step on four GPUs ("seconds_to_first_step").
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

few=(--warm-up 1 --steps 1 --no-ceiling)
read -ra model <<<"$(llama3 32 4096)"
run_case "start-up, Llama-3-8B, DP4" "${model[@]}" "${few[@]}" "${overlapped[@]}" --nproc-per-node 4 --micro-batch-size 1
finish
