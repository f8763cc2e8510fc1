#!/usr/bin/env bash
# From launch to the end of the first step ("seconds_to_first_step").
# shellcheck disable=SC1091,SC2154
source "$(dirname "$0")/rows.sh"

few=(--warm-up 1 --steps 1 --no-ceiling)
read -ra model <<<"$(llama3 8 4096)"
run_case "start-up, Llama-3-8B, 8 layers" "${model[@]}" "${few[@]}" --micro-batch-size 1 --global-batch-size 1
finish
