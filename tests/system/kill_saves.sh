#!/usr/bin/env bash
# Kills runs at random points of their saves (kill -9), fills their disk, and makes their writes short: the newest complete
# checkpoint always loads, nothing that was reported as saved is lost, and every later loss has the bits of an undisturbed run.
# Also runs 200 saves in a row, whose resident memory must not grow. Prints a line for each case.
#
#   tests/system/kill_saves.sh MEGATRON [--kills N] [--saves N] [--seed N] [--short-writes LIBRARY] [CASE...]
#
# The whole takes about a quarter of an hour: tests/system/kill_saves.sh build/bin/megatron --short-writes build/tests/short_writes.so
#
# --kills         of each kind of save; default 100.
# --saves         of the memory case; default 200.
# --seed          of the random times; default 1.
# --short-writes  short_writes.so of the build folder; without it that case is NOT RUN.
# CASE            sync async local disk short memory; default all.
set -euo pipefail
megatron=$(realpath "$1")
shift
kills=100 saves=200 seed=1 short_writes="" cases=()
while [ $# -gt 0 ]; do
  case $1 in
    --kills) kills=$2; shift ;;
    --saves) saves=$2; shift ;;
    --seed) seed=$2; shift ;;
    --short-writes) short_writes=$(realpath "$2"); shift ;;
    *) cases+=("$1") ;;
  esac
  shift
done
[ ${#cases[@]} -gt 0 ] || cases=(sync async local disk short memory)
RANDOM=$seed
work=$(mktemp -d)
pid=""
# shellcheck disable=SC2317  # called by the trap
clean_up() {
  [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
  ! mountpoint -q "$work/full" 2>/dev/null || umount "$work/full"
  rm -rf "$work"
}
trap clean_up EXIT

fail() {
  echo "kill_saves: FAILED: $*" >&2
  exit 1
}

# A model with 10 MB of state, most of whose time goes into saves: two ranks, which share what they store.
readonly last_iteration=100000 longest_ms=600
flags=(pretrain_gpt --device cpu --nproc-per-node 2 --num-threads 1 --num-layers 2 --hidden-size 64 --num-attention-heads 4
  --seq-length 8 --max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 2 --mock-data --tokenizer-type NullTokenizer
  --vocab-size 8000 --lr 1e-3 --train-iters "$last_iteration" --eval-iters 0 --log-interval 1 --use-distributed-optimizer)

# NAME FLAGS...: starts the run NAME in the background: $pid, NAME/log, NAME/losses.jsonl.
start() {
  local folder=$work/$1
  shift
  mkdir -p "$folder"
  rm -f "$folder/losses.jsonl"
  "$megatron" "${flags[@]}" --log-jsonl "$folder/losses.jsonl" "$@" >"$folder/log" 2>&1 &
  pid=$!
}

# The iteration and loss of each step, all digits.
losses() { grep -o '"iteration":[0-9]*,.*"lm_loss":[^,}]*' "$1" | sed 's/"iteration":\([0-9]*\),.*"lm_loss":/\1 /' || true; }

# The losses of a run that nobody disturbs, up to some iteration: $work/expected.
reference() { # ITERATION
  start reference --exit-interval "$1"
  wait "$pid" || fail "the reference run: $(tail -n 3 "$work/reference/log")"
  losses "$work/reference/losses.jsonl" >"$work/expected"
  [ "$(wc -l <"$work/expected")" -ge "$1" ] || fail "the reference run has $(wc -l <"$work/expected") losses"
}

# Every loss of a log is that of the reference run, whose length grows where it is needed.
expect_same_losses() { # LOG
  local last
  # A kill may cut the last line off.
  losses "$1" >"$work/got"
  last=$(tail -n 1 "$work/got" | cut -d ' ' -f 1)
  [ -n "$last" ] || return 0
  [ "$last" -le "$(wc -l <"$work/expected")" ] || reference $((last * 2))
  awk 'NR == FNR {expected[$1] = $2; next} expected[$1] != $2 {print "iteration " $1 ": " $2 ", not " expected[$1]; bad = 1}
    END {exit bad}' "$work/expected" "$work/got" || fail "the losses part"
}

# Waits until a file has a line; the run must not end before.
wait_for() { # FILE PATTERN
  while ! grep -qs -- "$2" "$1"; do
    kill -0 "$pid" 2>/dev/null || fail "the run ended: $(tail -n 3 "$1")"
    sleep 0.01
  done
}

first_of() { losses "$1" | head -n 1 | cut -d ' ' -f 1; }

# Kills a run at random moments, and lets it go on each time. LAG: the iteration that is surely saved when one is logged, before it.
kill_saves() { # NAME LAG FLAGS...
  local name=$1 lag=$2 folder=$work/$1 saved=0 last=0 resumed in_save=0 reported round
  shift 2
  mkdir -p "$folder"
  for ((round = 1; round <= kills; ++round)); do
    start "$name" --save "$folder/saved" --load "$folder/saved" "$@"
    wait_for "$folder/losses.jsonl" lm_loss
    # On a slow machine every kill may come before the first checkpoint of the folder, which is verified below.
    [ "$round" -lt "$kills" ] || wait_for "$folder/saved/latest_checkpointed_iteration.txt" '[0-9]'
    sleep "0.$(printf "%03d" $((RANDOM % longest_ms)))"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    [ -z "$(find "$folder" -name '*.saving' -print -quit)" ] || in_save=$((in_save + 1))
    resumed=$(($(first_of "$folder/losses.jsonl") - 1))
    [ "$resumed" -ge "$saved" ] || fail "$name, kill $round: iteration $saved was saved, but $resumed was loaded"
    expect_same_losses "$folder/losses.jsonl"
    last=$(tail -n 1 "$work/got" | cut -d ' ' -f 1)
    saved=$((last - lag > resumed ? last - lag : resumed))
    reported=$(sed -n 's/.*successfully saved .*checkpoint from iteration *\([0-9]*\) to.*/\1/p' "$folder/log" | tail -n 1)
    [ "${reported:-0}" -le "$saved" ] || saved=$reported
  done
  [ "$saved" -gt 0 ] || fail "$name: nothing was ever saved"
  "$megatron" checkpoint verify "$folder/saved" >"$folder/verify" 2>&1 || fail "$name: $(tail -n 3 "$folder/verify")"
  echo "$name: $kills kills, $in_save of them within a save, the last one at iteration $last; all losses equal"
}

case_sync() { kill_saves sync 1 --save-interval 1 --save-retain-interval 1000; }
case_async() { kill_saves async 2 --save-interval 1 --save-retain-interval 1000 --async-save; }
case_local() {
  kill_saves local 1 --save-interval 4 --save-retain-interval 1000 --non-persistent-ckpt-type local \
    --non-persistent-save-interval 1 --non-persistent-local-ckpt-dir "$work/local/node" --replication --replication-jump 1
}

case_disk() {
  local limited=$work/limited status=0
  mkdir -p "$limited"
  start before --save "$limited" --save-interval 2 --exit-interval 2
  wait "$pid" || fail "disk: $(tail -n 3 "$work/before/log")"
  # A limit on the size of a file: the last write is cut short, the next one fails.
  for extra in "" --async-save; do
    status=0
    # shellcheck disable=SC2086  # $extra may be empty
    (trap '' XFSZ && ulimit -f 500 && "$megatron" "${flags[@]}" --save "$limited" --load "$limited" --save-interval 2 \
      --exit-interval 4 $extra) >"$work/limited.log" 2>&1 || status=$?
    [ "$status" -eq 6 ] || fail "disk: exit status $status, not 6: $(tail -n 3 "$work/limited.log")"
    grep -q 'distcp.*File too large' "$work/limited.log" || fail "disk: $(tail -n 3 "$work/limited.log")"
    [ "$(cat "$limited/latest_checkpointed_iteration.txt")" = 2 ] || fail "disk: the tracker moved"
  done
  start after --save "$limited" --load "$limited" --save-interval 2 --exit-interval 6
  wait "$pid" || fail "disk: $(tail -n 3 "$work/after/log")"
  [ "$(first_of "$work/after/losses.jsonl")" = 3 ] || fail "disk: the run did not go on from iteration 2"
  expect_same_losses "$work/after/losses.jsonl"
  echo "disk: a file that cannot grow ends the save, and the checkpoint before it loads"
  mkdir -p "$work/full"
  if ! mount -t tmpfs -o size=27m tmpfs "$work/full" 2>/dev/null; then
    echo "disk: NOT RUN on a full file system: no tmpfs can be mounted"
    return
  fi
  start small --save "$work/full" --save-interval 1
  wait "$pid" && fail "disk: checkpoints without end fit into 27 MB"
  grep -q 'left, the checkpoint needs' "$work/small/log" || fail "disk: $(tail -n 3 "$work/small/log")"
  start after --load "$work/full" --exit-interval 6
  wait "$pid" || fail "disk: $(tail -n 3 "$work/after/log")"
  [ "$(first_of "$work/after/losses.jsonl")" = 3 ] || fail "disk: the run did not go on from iteration 2"
  expect_same_losses "$work/after/losses.jsonl"
  umount "$work/full"
  echo "disk: a full file system ends the save, and the checkpoint before it loads"
}

case_short() {
  [ -n "$short_writes" ] || { echo "short: NOT RUN: give --short-writes"; return; }
  local kind file saving
  for kind in "" --async-save; do
    rm -rf "$work/saved" "$work/plain"
    # Both runs have one folder of --save, whose name is in the files.
    saving=(--save "$work/saved" --save-interval 2 --exit-interval 2)
    [ -z "$kind" ] || saving+=("$kind")
    start short "${saving[@]}"
    wait "$pid" || fail "short: $(tail -n 3 "$work/short/log")"
    mv "$work/saved" "$work/plain"
    LD_PRELOAD=$short_writes start short "${saving[@]}"
    wait "$pid" || fail "short: $(tail -n 3 "$work/short/log")"
    for file in "$work"/plain/iter_0000002/__*.distcp; do
      cmp "$file" "$work/saved/iter_0000002/$(basename "$file")" || fail "short: another file"
    done
    LD_PRELOAD=$short_writes start more --load "$work/saved" --exit-interval 4
    wait "$pid" || fail "short: $(tail -n 3 "$work/more/log")"
    [ "$(first_of "$work/more/losses.jsonl")" = 3 ] || fail "short: the run did not go on from iteration 2"
    expect_same_losses "$work/more/losses.jsonl"
  done
  ! grep -q 'cannot be preloaded' "$work/short/log" || fail "short: $(head -n 1 "$work/short/log")"
  echo "short: short and interrupted writes and reads change no byte"
}

# Resident KiB of the run.
resident() { awk '/^VmRSS/ {print $2}' "/proc/$pid/status"; }

# The least-squares slope of lines "x y".
slope() {
  awk '{n++; x += $1; y += $2; xx += $1 * $1; xy += $1 * $2} END {printf "%.3f", (n * xy - x * y) / (n * xx - x * x)}' "$1"
}

case_memory() {
  local kind save kib num_measured=$((saves - saves / 4))
  for kind in "" --async-save; do
    rm -rf "$work/memory"
    mkdir -p "$work/memory"
    # shellcheck disable=SC2086  # $kind may be empty
    start memory --save "$work/memory/saved" --save-interval 1 --save-retain-interval 1000 $kind
    # The first quarter fills pools and caches.
    for ((save = saves / 4; save <= saves; save += saves / 20)); do
      wait_for "$work/memory/losses.jsonl" "\"iteration\":$save,"
      echo "$save $(resident)" >>"$work/memory/resident"
    done
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    kib=$(slope "$work/memory/resident")
    echo "memory ${kind:-synchronous}: $(head -n 1 "$work/memory/resident" | cut -d ' ' -f 2) KiB after $((saves / 4)) saves," \
      "$(tail -n 1 "$work/memory/resident" | cut -d ' ' -f 2) KiB after $saves, slope $kib KiB a save"
    # 2 MiB in all, a fifth of the state: the allocator's arenas grow by about 1 MiB until each thread has had its largest save.
    awk -v slope="$kib" -v n="$num_measured" 'BEGIN {exit slope * n > 2048}' || fail "memory grows by $kib KiB with each save"
  done
}

reference 50
for name in "${cases[@]}"; do "case_$name"; done
