#!/usr/bin/env bash
# fuzz_all.sh SECONDS OUT [FUZZERS]
#
# Runs every fuzzer fuzz_NAME of the folder FUZZERS (default: the folder of this script) for SECONDS, all at the same time,
# and goes on after a finding. Seeds are the files of FUZZERS/corpus/NAME, as scripts/fuzz_corpora.sh collects them.
# OUT/summary.txt has a line for each fuzzer, OUT/findings the inputs that failed, OUT/logs the reports and OUT/found the
# inputs that reach further code. The exit status is 1 if there is a finding.
set -euo pipefail
if [ $# -lt 2 ]; then sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; fi
seconds=$1
out=$(mkdir -p "$2" && cd "$2" && pwd)
fuzzers=$(cd "${3:-$(dirname "$0")}" && pwd)
most_findings=20 # of one fuzzer, which then ends
mkdir -p "$out/logs" "$out/findings"
memory=/dev/shm # the readers of files get their inputs as files
[ -w "$memory" ] || memory=${TMPDIR:-/tmp}
scratch=$(mktemp -d "$memory/fuzz.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export UBSAN_OPTIONS=print_stacktrace=1

largest_input() { # bytes: about the size of the larger seeds
  case $1 in
    tokenizer_json) echo 32768 ;;
    metadata | torch_file) echo 16384 ;;
    *) echo 4096 ;;
  esac
}

program_of() { # the command that runs a fuzzer: by the C library of FUZZERS/lib/libc where the machine's is too old
  local libraries=$fuzzers/lib program=$fuzzers/fuzz_$1
  if [ -x "$libraries/libc/ld-linux-x86-64.so.2" ] && ! "$program" -help=1 >/dev/null 2>&1; then
    echo "$libraries/libc/ld-linux-x86-64.so.2 --library-path $libraries/libc:$libraries $program"
  else
    echo "$program"
  fi
}

fuzz() { # NAME
  local name=$1 log=$out/logs/$1.log findings=0 executions=0 coverage=0 end=$((SECONDS + seconds)) status now seen program
  read -ra program <<<"$(program_of "$name")"
  local flags=(-rss_limit_mb=4096 -timeout=60 -max_len="$(largest_input "$name")" -print_final_stats=1
    -artifact_prefix="$out/findings/$name-")
  [ -e "$fuzzers/corpus/$name.dict" ] && flags+=(-dict="$fuzzers/corpus/$name.dict")
  mkdir -p "$out/found/$name" "$scratch/$name"
  : >"$log"
  while [ $SECONDS -lt $end ] && [ $findings -lt $most_findings ]; do
    status=0
    TMPDIR=$scratch/$name "${program[@]}" "${flags[@]}" -max_total_time=$((end - SECONDS)) "$out/found/$name" \
      "$fuzzers/corpus/$name" >"$scratch/$name.log" 2>&1 || status=$?
    cat "$scratch/$name.log" >>"$log"
    now=$(sed -n 's/^stat::number_of_executed_units: *//p' "$scratch/$name.log" | tail -n 1)
    executions=$((executions + ${now:-0}))
    seen=$(grep -o ' cov: [0-9]*' "$scratch/$name.log" | tail -n 1 | tr -dc 0-9 || true)
    [ "${seen:-0}" -gt "$coverage" ] && coverage=$seen
    [ $status -eq 0 ] && continue
    findings=$((findings + 1))
  done
  echo "$name: $executions executions, coverage $coverage, $findings findings" >"$scratch/$name.summary"
}

names=()
for fuzzer in "$fuzzers"/fuzz_*; do
  [ -x "$fuzzer" ] && [[ $fuzzer != *.sh ]] && names+=("$(basename "$fuzzer" | cut -c6-)")
done
read -ra program <<<"$(program_of "${names[0]}")"
if "${program[@]}" -runs=1 "$fuzzers/corpus/${names[0]}" 2>&1 | grep -q 'LeakSanitizer has encountered a fatal error'; then
  echo "fuzz_all.sh: leaks are not detected: this machine allows no process to trace another"
  export ASAN_OPTIONS=detect_leaks=0
fi
for name in "${names[@]}"; do fuzz "$name" & done
wait
cat "$scratch"/*.summary | tee "$out/summary.txt"
! grep -qv ' 0 findings$' "$out/summary.txt"
