#!/usr/bin/env bash
# Every case of benchmarks/gpu_table runs in small on the CPU, writes one row, and is not run again.
#
#   tests/benchmarks/gpu_table_test.sh MEGATRON
set -euo pipefail
table=$(dirname "$0")/../../benchmarks/gpu_table
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "gpu_table_test: $*" >&2
  exit 1
}

run_all() {
  local row
  for row in "$table"/*.sh; do
    grep -q '^source .*rows.sh' "$row" || continue  # what the rows share
    "$row" --megatron "$1" --output "$work/rows.jsonl" --commit test --dry-run >"$work/log" 2>&1 || { cat "$work/log"; fail "$row failed"; }
  done
}

run_all "$1"
cases=$(cat "$table"/*.sh | grep -c '^run_case "')
rows=$(wc -l <"$work/rows.jsonl")
[ "$rows" -eq "$cases" ] || fail "$cases cases wrote $rows rows"
grep -q '"case":"step"' "$work/rows.jsonl" || fail "there is no row of a step"
for key in tokens_per_second_per_rank loss clock_mhz watts commit seconds_to_first_step; do
  [ "$(grep -c "\"$key\":" "$work/rows.jsonl")" -eq "$cases" ] || fail "$key is not in every row"
done
run_all /bin/true
[ "$(wc -l <"$work/rows.jsonl")" -eq "$cases" ] || fail "cases were run again"
echo "$cases cases"
