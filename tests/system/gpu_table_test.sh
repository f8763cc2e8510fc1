#!/usr/bin/env bash
# Every case of benchmarks/gpu_table runs in small on the CPU, writes one row, and is not run again. A row of another GPU or of
# fewer steps does not stand for one that is asked for, and a call ends in time.
#
#   tests/system/gpu_table_test.sh MEGATRON
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

# Cases of another script, by a stand-in for the program that writes what was asked for, and is slow at $SLOW.
mkdir "$work/bin"
cat >"$work/bin/megatron" <<'END'
#!/usr/bin/env bash
steps=20 warm_up=10
while [ $# -gt 0 ]; do
  case $1 in
    --name) name=$2 ;;
    --json) json=$2 ;;
    --commit) commit=$2 ;;
    --steps) steps=$2 ;;
    --warm-up) warm_up=$2 ;;
  esac
  shift
done
[ "$name" != "$SLOW" ] || sleep 99
echo "{\"bench\":\"step\",\"name\":\"$name\",\"device\":\"$(nvidia-smi)\",\"commit\":\"$commit\",\"case\":\"step\",\"steps\":$steps,\"warm_up\":$warm_up,}" >>"$json"
END
# shellcheck disable=SC2016
echo 'echo "$GPU"' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/"*
cp "$table"/{rows,models}.sh "$work/bin/"
cat >"$work/bin/row.sh" <<'END'
source "$(dirname "$0")/rows.sh"
run_case "one" --warm-up 10
run_case "two" --steps 4
finish
END

export SLOW=""
# row GPU ROWS STATUS FLAG...: after the call the file has so many rows
row() {
  local gpu=$1 expected=$2 code=0
  local expected_status=$3
  shift 3
  PATH=$work/bin:$PATH GPU=$gpu bash "$work/bin/row.sh" --megatron "$work/bin/megatron" --output "$work/resumed.jsonl" --commit c "$@" \
    >"$work/log" 2>&1 || code=$?
  [ "$(wc -l <"$work/resumed.jsonl")" -eq "$expected" ] || { cat "$work/resumed.jsonl"; fail "$* on $gpu: not $expected rows"; }
  [ $code -eq "$expected_status" ] || { cat "$work/log"; fail "$* on $gpu: status $code, not $expected_status"; }
}
row "GPU A" 2 0 --steps 3
row "GPU A" 2 0 --steps 3
row "GPU A" 4 0
row "GPU A" 6 0 --warm-up 1
row "GPU B" 8 0
row "GPU B" 8 0

# A slow case is left for the next call, in which it has the whole time; the one behind it runs in the call after that.
echo 'run_case "three"' | sed -i '/^run_case "two"/r /dev/stdin' "$work/bin/row.sh"
export SLOW=two
row "GPU C" 9 75 --seconds 3
row "GPU C" 9 1 --seconds 3
row "GPU C" 10 75 --seconds 9
grep -q '"name":"three","device":"GPU C"' "$work/resumed.jsonl" || fail "the case behind a slow one did not run"
row "GPU C" 10 1 --seconds 3
SLOW=""
row "GPU C" 10 75
row "GPU C" 11 0

# A driver that does not answer: rows of any GPU stand for the cases.
printf 'echo "NVIDIA-SMI has failed"\nexit 9\n' >"$work/bin/nvidia-smi"
row "no GPU" 11 0
echo "$cases cases, 13 calls"
