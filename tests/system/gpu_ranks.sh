#!/usr/bin/env bash
# Ranks with a GPU each, as users start them: the same numbers under every launcher, in every run and after a kill; ranks that
# are lost, or that were given something else, are named, and end all in time with the exit statuses of docs/launching.md.
# Afterwards no process of theirs is left, and no memory of a GPU is held. A line for each case.
#
#   tests/system/gpu_ranks.sh [PROGRAM [CASE...]]      PROGRAM: default build-cuda/bin/megatron; CASE: default all
#
# Needs two GPUs; else it prints NOT RUN with the reason and exits with 77, which ctest counts as skipped. Launchers that are
# not installed are said to be NOT RUN. GPU_RANKS_LOGS=DIR keeps the logs. GPU_RANKS_AT_ONCE=N runs so many cases at once (default 1:
# ranks that wait for each other on GPUs with several programs take turns with them). GPU_RANKS_DEVICE=cpu runs those cases on
# threads that do not need ranks to be processes, with a smaller model.
# shellcheck disable=SC2317  # cases are called by name
set -uo pipefail

here=$(dirname "$(realpath "$0")")
program=$(realpath "${1:-build-cuda/bin/megatron}")
shift
at_once=${GPU_RANKS_AT_ONCE:-1}
folder=${GPU_RANKS_LOGS:-$(mktemp -d)}
device=${GPU_RANKS_DEVICE:-cuda}
if [ "$device" = cpu ]; then width=64 length=64; else width=256 length=128; fi
readonly seconds_of_a_run=60
# shellcheck source=tests/system/gpu_launchers.sh
source "$here/gpu_launchers.sh"

not_run() {
  echo "NOT RUN: $*"
  exit 77
}

# Flags of all runs: deterministic, every iteration in the log with all digits.
small=(--device "$device" --num-layers 4 --hidden-size "$width" --num-attention-heads 4 --seq-length "$length"
  --max-position-embeddings "$length" --micro-batch-size 4 --global-batch-size 16 --lr 1e-3 --deterministic-mode
  --log-interval 1 --eval-iters 0 --distributed-timeout-minutes 1 --num-threads 2)
tokens=(--mock-data --tokenizer-type NullTokenizer --vocab-size 1000)
sharded=(--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
launched=("${small[@]}" "${tokens[@]}" --bf16 "${sharded[@]}" --train-iters 6)
tensor=(--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap)

# Loss and gradient norm of each iteration, all digits. @param 2  of iterations after this one
numbers() {
  grep -o '"iteration":[0-9]*\|"lm_loss":[^,}]*\|"grad_norm":[^,}]*' "$1" | awk -F: -v after="${2:-0}" '
    $1 == "\"iteration\"" {is_later = $2 > after; next}
    is_later {print}'
}

fail() {
  echo "$*"
  return 1
}

# trains NAME COMMAND...: into $work/NAME.jsonl
trains() {
  local name=$1 status=0
  shift
  "$@" --log-jsonl "$work/$name.jsonl" >"$work/$name.log" 2>&1 || status=$?
  [ "$status" = 0 ] || { tail -n 5 "$work/$name.log"; fail "$name ends with status $status"; }
}

# same_numbers NUM_ITERATIONS A B [AFTER]: of the runs A and B, both of so many iterations
same_numbers() {
  numbers "$work/$2.jsonl" "${4:-0}" >"$work/$2.numbers"
  numbers "$work/$3.jsonl" "${4:-0}" >"$work/$3.numbers"
  [ "$(wc -l <"$work/$2.numbers")" = $((2 * $1)) ] || fail "$2 has other than $1 iterations" || return
  cmp "$work/$2.numbers" "$work/$3.numbers" || fail "$2 and $3 have other numbers"
}

# What rounding in fp32 may make of the losses of three steps, relatively: 8 deviations of 2^-23 each (tolerance.h)
rounding=$(awk 'BEGIN {print 8 * 2 ^ -23 * sqrt(3)}')

# near LIMIT A B AFTER: the three losses of the runs A and B after this iteration are so near, relatively
near() {
  local apart
  apart=$(paste -d: <(numbers "$work/$2.jsonl" "$4" | grep loss) <(numbers "$work/$3.jsonl" "$4" | grep loss) | awk -F: '
    {d = ($2 - $4) / $4; if (d < 0) d = -d; if (d > most) most = d; ++n} END {print (n == 3) ? most + 0 : "other numbers of losses"}')
  awk -v apart="$apart" -v limit="$1" 'BEGIN {exit !(apart + 0 == apart && apart <= limit)}' || fail "$2 and $3: $apart apart" || return
  echo "$3 within $apart of $2"
}

# ---- the same bits again ----

case_twice_sharded() { twice "${sharded[@]}"; }
case_twice_tensor() { twice "${tensor[@]}"; }
twice() {
  local run=("${small[@]}" "${tokens[@]}" --bf16 "$@" --train-iters 20)
  trains first under own 2 "${run[@]}" && trains second under own 2 "${run[@]}" && same_numbers 20 first second &&
    echo "20 iterations in bf16, twice the same bits"
}

# What these comparisons are for shows in them.
case_other_seed() {
  local run=("${small[@]}" "${tokens[@]}" --train-iters 3)
  trains first under own 2 "${run[@]}" && trains second under own 2 "${run[@]}" --seed 7 || return
  ! same_numbers 3 first second >/dev/null || fail "another seed has the same numbers" || return
  ! near "$rounding" first second 0 >/dev/null || fail "another seed has almost the same numbers" || return
  echo "numbers of another seed differ by more than rounding"
}

case_resume_one() { resume 1; }
case_resume_sharded() { resume 2 "${sharded[@]}"; }
case_resume_tensor() { resume 2 "${tensor[@]}"; }
# 5 iterations, a kill in the middle of those that follow, and 5 more: the bits of 10.
resume() {
  local num_ranks=$1
  shift
  local run=("${small[@]}" "${tokens[@]}" --bf16 --train-iters 1000000 "$@")
  trains whole under own "$num_ranks" "${run[@]}" --exit-interval 10 || return
  under own "$num_ranks" "${run[@]}" --save "$work/saved" --save-interval 5 --log-jsonl "$work/killed.jsonl" \
    >"$work/killed.log" 2>&1 &
  local job=$! status=0
  wait_for_iterations "$work/killed.jsonl" 7 "$job"
  pgrep -f -- "$work/killed.jsonl" | xargs kill -KILL
  wait "$job" || status=$?
  [ "$status" = 137 ] || fail "the run was not killed: status $status" || return
  trains resumed under own "$num_ranks" "${run[@]}" --exit-interval 10 --load "$work/saved" --ckpt-step 5 &&
    same_numbers 5 whole resumed 5 &&
    echo "killed after iteration $(grep -c lm_loss "$work/killed.jsonl"), resumed after 5: the bits of 10 iterations"
}

# Written by two ranks, read by two in another layout, by one and by the CPU.
case_checkpoint() {
  local run=("${small[@]}" "${tokens[@]}" --train-iters 8)
  local load=("${run[@]}" --load "$work/saved" --ckpt-step 5)
  trains two_ranks under own 2 "${run[@]}" "${tensor[@]}" --save "$work/saved" --save-interval 5 || return
  trains two_sharded under own 2 "${load[@]}" "${sharded[@]}" || return
  trains one_gpu under own 1 "${load[@]}" || return
  trains the_cpu under own 1 "${load[@]}" --device cpu --num-threads 8 || return
  near "$rounding" two_ranks two_sharded 5 && near "$rounding" two_ranks one_gpu 5 && near "$rounding" two_ranks the_cpu 5
}

# The first rank has the only sample of the validation set, and reads weights that others would gather in the graph of their next step.
case_evaluation() {
  text_data a && text_data sample 200 || return
  local run=("${small[@]}" "${sharded[@]}" --tokenizer-type ByteLevelTokenizer --train-data-path "$work/a_text_document"
    --valid-data-path "$work/sample_text_document" --data-cache-path "$work/cache" --full-validation --eval-interval 2 --train-iters 8)
  trains op_by_op under own 2 "${run[@]}" &&
    trains graphs under own 2 "${run[@]}" --cuda-graph-impl full_iteration --cuda-graph-warmup-steps 2 || return
  grep -q "forward and backward are one CUDA graph" "$work/graphs.log" || fail "no graph was recorded" || return
  local number
  number=$(grep -c validation_lm_loss "$work/graphs.jsonl")
  [ "$number" = 5 ] || fail "$number validations, not 5" || return  # after each second iteration, and at the end
  cmp <(grep -o '"validation_lm_loss.*' "$work/op_by_op.jsonl") <(grep -o '"validation_lm_loss.*' "$work/graphs.jsonl") &&
    same_numbers 8 op_by_op graphs && echo "the same bits with and without graphs"
}

# ---- ranks that are lost ----

wait_for_iterations() { # FILE NUMBER JOB
  local number=0
  while [ "$number" -lt "$2" ] && kill -0 "$3" 2>/dev/null; do
    sleep 0.02
    number=$(grep -cs lm_loss "$1")
    number=${number:-0}
  done
}

# rank_process RANK: the process that is this rank of the run under way in $work
rank_process() {
  local process
  for process in $(pgrep -f -- "$work/steps.jsonl"); do
    tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qxE "(RANK|OMPI_COMM_WORLD_RANK|SLURM_PROCID)=$1" &&
      [[ $(realpath "/proc/$process/exe") = */megatron* ]] && echo "$process" && return
  done
}

milliseconds() { date +%s%3N; }

# ends STATUS LIMIT TEXT...: the job $job, which was disturbed at the time $since, ends with this status within LIMIT ms. Its log has
# these texts, and none of its processes is left. STATUS "any" is any but 0.
ends() {
  local expected=$1 limit=$2 status=0 took text
  shift 2
  wait "$job" || status=$?
  took=$(($(milliseconds) - since))
  if [ "$status" = 0 ] || { [ "$expected" != any ] && [ "$status" != "$expected" ]; }; then
    tail -n 8 "$work/log"
    fail "status $status, not $expected" || return
  fi
  for text in "$@"; do grep -qE -- "$text" "$work/log" || { tail -n 8 "$work/log"; fail "no '$text'"; } || return; done
  [ "$took" -le "$limit" ] || fail "ended after $took ms, not within $limit" || return
  sleep 0.3
  [ -z "$(pgrep -f -- "$work/steps.jsonl")" ] || fail "processes are left: $(pgrep -af -- "$work/steps.jsonl")" || return
  echo "status $status after $took ms: $(grep -hE -- "$1" "$work/log" | head -n 1 | cut -c 1-150)"
}

# disturb LAUNCHER SIGNAL FLAG...: two ranks train, and after $iterations iterations and $pause seconds the second gets the signal.
iterations=3 pause=0
disturb() {
  local launcher=$1 signal=$2
  shift 2
  under "$launcher" 2 "${small[@]}" "${tokens[@]}" --bf16 --train-iters 1000000 --log-jsonl "$work/steps.jsonl" "$@" >"$work/log" 2>&1 &
  job=$!
  wait_for_iterations "$work/steps.jsonl" "$iterations" "$job"
  sleep "$pause"
  since=$(milliseconds)
  kill "-$signal" "$(rank_process 1)" || { tail -n 5 "$work/log"; fail "the run ended before"; }
}

# In ms. Of operations in which ranks are lost; until all ranks know who did not come (NcclWorld::kTimeToTell); what those that are
# left have to end (kTimeToEnd of process_starter.h); what CUDA takes to end a process.
readonly timeout=3000 to_tell=3200 to_end=3000 of_cuda=2500
case_kill() { disturb own KILL && ends 137 $((to_end + of_cuda)) "rank 1 was ended by signal 9 \(Killed\)"; }
case_kill_tensor() { disturb own KILL "${tensor[@]}" && ends 137 $((to_end + of_cuda)) "rank 1 was ended by signal 9 \(Killed\)"; }
# Nothing ends ranks whose launcher does not: those that are left find out by the timeout.
case_kill_variables() {
  disturb variables_of_srun KILL --distributed-timeout-seconds-after-init 3 && ends 7 $((timeout + to_tell + of_cuda)) "Rank 1 does not answer: its process hangs or is lost"
}
readonly of_stop=$((timeout + to_tell + to_end + of_cuda))
case_stop() {
  disturb own STOP --distributed-timeout-seconds-after-init 3 && ends 7 "$of_stop" "timed out after 3000 ms: rank 1" "Rank 1 does not answer: its process hangs or is lost"
}
case_stop_tensor() {
  disturb own STOP --distributed-timeout-seconds-after-init 3 "${tensor[@]}" && ends 7 "$of_stop" "timed out after 3000 ms: rank 1" "Rank 1 does not answer"
}

# The host is a step ahead of its GPU, whose queue of kernels is full: a call of CUDA then returns when there is room, which is when
# the rank that was lost has come.
large=(--num-layers 32 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048
  --micro-batch-size 4 --global-batch-size 64 --distributed-timeout-seconds-after-init 3)
case_kill_full_queue_tensor() { kill_full_queue own 137 "rank 1 was ended by signal 9 \(Killed\)" "${tensor[@]}"; }
case_kill_full_queue_pipeline() { kill_full_queue variables_of_srun 7 "Rank 1 does not answer" --pipeline-model-parallel-size 2; }
case_kill_full_queue_variables() { kill_full_queue variables_of_srun 7 "Rank 1 does not answer" "${tensor[@]}"; }
graph=(--cuda-graph-impl full_iteration --cuda-graph-warmup-steps 1) # has all of the step: the host waits
case_kill_graph_tensor() { kill_full_queue variables_of_srun 7 "Rank 1 does not answer" "${tensor[@]}" "${graph[@]}"; }
case_kill_graph_sharded() { kill_full_queue variables_of_srun 7 "Rank 1 does not answer" "${sharded[@]}" "${graph[@]}"; }
kill_full_queue() { # LAUNCHER STATUS TEXT FLAG...
  local launcher=$1 expected=$2 text=$3 iterations=2 pause=0.7
  shift 3
  disturb "$launcher" KILL "${large[@]}" "$@" && ends "$expected" "$of_stop" "$text"
}
case_stop_full_queue_tensor() { stop_full_queue "${tensor[@]}"; }
case_stop_full_queue_pipeline() { stop_full_queue --pipeline-model-parallel-size 2; }
stop_full_queue() { # FLAG...
  local iterations=2 pause=0.7
  disturb own STOP "${large[@]}" "$@" && ends 7 "$of_stop" "timed out after 3000 ms" "Rank 1 does not answer: its process hangs or is lost"
}

# Who cancels the job ends all of it.
case_cancel() {
  under own 2 "${small[@]}" "${tokens[@]}" --bf16 --train-iters 1000000 --log-jsonl "$work/steps.jsonl" >"$work/log" 2>&1 &
  job=$!
  wait_for_iterations "$work/steps.jsonl" 3 "$job"
  since=$(milliseconds)
  kill -TERM "$(pgrep -P "$job")"  # timeout, which passes it on
  ends 143 $((to_end + of_cuda)) "rank [01] was ended by signal 15"
}

# ---- ranks that were given something else, or not enough ----

# differs STATUS WORDS_OF_LAST FLAG... -- TEXT...
differs() {
  local expected=$1 words=$2 run=()
  shift 2
  while [ "$1" != -- ]; do run+=("$1"); shift; done
  shift
  since=$(milliseconds)
  under_variables 2 "$words" "${small[@]}" --train-iters 5 --log-jsonl "$work/steps.jsonl" "${run[@]}" >"$work/log" 2>&1 &
  job=$!
  ends "$expected" 20000 "$@"
}

text_data() { # NAME [BYTES]: text of its own in $work/NAME_text_document
  seq -f "The line %g of $1 is as long as it has to be." 4000 >"$work/$1.txt"
  [ -z "${2:-}" ] || truncate -s "$2" "$work/$1.txt"
  "$program" preprocess_data --input "$work/$1.txt" --input-format text --tokenizer-type ByteLevelTokenizer --output-prefix "$work/$1" \
    >"$work/$1.log" 2>&1
}

case_other_flags() { differs 2 "--lr 2e-3" "${tokens[@]}" -- "different flags: --lr .*0.001 on rank 0, .*0.002 on rank 1"; }
case_other_data() {
  text_data a && text_data longer || return
  local run=(--tokenizer-type ByteLevelTokenizer --split "1,0,0" --data-cache-path "$work/cache")
  differs 3 "--data-path $work/longer_text_document" "${run[@]}" --data-path "$work/a_text_document" -- \
    "different data: .*/a_text_document.* on rank 0, .*/longer_text_document.* on rank 1"
}
# Tokens that the vocabulary does not have: one rank comes upon the first.
case_throw() {
  text_data broken || return
  local place wrong=$((0x7fff))
  for place in 40060 120060 200060 280060; do
    printf '\xff\x7f' | dd of="$work/broken_text_document.bin" bs=1 seek="$place" conv=notrunc status=none
  done
  since=$(milliseconds)
  under own 2 "${small[@]}" --train-iters 100 --tokenizer-type ByteLevelTokenizer --split "1,0,0" --data-path "$work/broken_text_document" \
    --data-cache-path "$work/cache" --log-jsonl "$work/steps.jsonl" >"$work/log" 2>&1 &
  job=$!
  ends 3 30000 "\[rank [01]\] .*token $wrong is not in the vocabulary of"
}
# A user's script shows both ranks the same GPU.
case_one_gpu_for_two() {
  local visible_gpus=(0 0)
  since=$(milliseconds)
  under one_visible 2 "${small[@]}" "${tokens[@]}" --train-iters 5 --log-jsonl "$work/steps.jsonl" >"$work/log" 2>&1 &
  job=$!
  ends 2 30000 "Every rank needs a GPU of its own, but ranks 0, 1 have the same one: [0-9A-Fa-f:.]+ of host"
}
# An activation larger than the GPU, on both ranks.
case_out_of_memory() {
  since=$(milliseconds)
  under own 2 "${small[@]}" "${tokens[@]}" --bf16 --train-iters 5 --ffn-hidden-size 262144 --num-layers 1 --micro-batch-size 4096 \
    --global-batch-size 8192 --log-jsonl "$work/steps.jsonl" >"$work/log" 2>&1 &
  job=$!
  ends 5 30000 "\[rank [01]\] This run does not fit in the memory of the GPU of rank [01]" "^activations " \
    "MORE than the GPU has" "MiB with --micro-batch-size [0-9]+"
}
# Another program has taken most of the second GPU's memory.
case_out_of_memory_of_one() {
  python3 -c "import torch" 2>/dev/null || { echo "NOT RUN: there is no PyTorch to fill a GPU"; return; }
  python3 -c "
import sys, time, torch
free, _ = torch.cuda.mem_get_info(1)
held = torch.empty(free - (12 << 30), dtype=torch.uint8, device='cuda:1')
print('full', flush=True)
time.sleep(60)" >"$work/filler" 2>&1 &
  local filler=$!
  for ((i = 0; i < 200; ++i)); do
    if grep -q full "$work/filler" || ! kill -0 "$filler" 2>/dev/null; then break; fi
    sleep 0.1
  done
  since=$(milliseconds)
  under own 2 "${small[@]}" "${tokens[@]}" --bf16 --train-iters 3 --ffn-hidden-size 65536 --num-layers 1 --micro-batch-size 1024 \
    --global-batch-size 2048 --log-jsonl "$work/steps.jsonl" >"$work/log" 2>&1 &
  job=$!
  local result=0
  ends 5 30000 "This run does not fit in the memory of the GPU of rank 1" "MORE than the GPU has" "^activations " || result=1
  kill "$filler"
  wait "$filler"
  return "$result"
}

# ---- all of them ----

used_memory() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 2 | tr '\n' ' '; }

# Whoever ends this script ends what it has started.
end_all() {
  pgrep -f -- "$folder/" | xargs -r kill -KILL
  exit 143
}

# What ranks have held is given back a moment after they have ended.
compare_memory() {
  local i used_after
  for ((i = 0; i < 20; ++i)); do
    used_after=$(used_memory)
    if [ "$used_after" = "$used_before" ]; then echo "memory of the GPUs: $used_after MiB, as before" && return; fi
    sleep 0.5
  done
  fail "memory of the GPUs: FAILED, $used_before MiB before, and $used_after MiB now"
}

shared_pages() { find /dev/shm -maxdepth 1 -name 'megatron.*' | sort; }

run_case() { # NAME
  work=$folder/$1
  mkdir -p "$work"
  local text
  text=$("case_$1" 2>&1)
  local status=$?
  [ "$status" = 0 ] || text="FAILED: $text"
  printf '%-28s %s\n' "$1" "$text"
  return "$status"
}

cases=("$@")
if [ "$device" = cpu ]; then
  [ ${#cases[@]} -gt 0 ] || cases=(twice_tensor other_seed resume_tensor checkpoint throw)
else
  command -v nvidia-smi >/dev/null || not_run "there is no nvidia-smi"
  [ "$(nvidia-smi --list-gpus 2>/dev/null | wc -l)" -ge 2 ] || not_run "two GPUs are needed"
fi
if [ ${#cases[@]} = 0 ]; then mapfile -t cases < <(declare -F | sed -n 's/^declare -f case_//p'); fi
if [ "$device" = cuda ]; then used_before=$(used_memory); fi
pages_before=$(shared_pages)
work=$folder
mkdir -p "$work"
trap end_all TERM INT
if [[ ${cases[*]} == *launch_* ]]; then trains own under own 2 "${launched[@]}" || exit 1; fi
status=0 running=0
for name in "${cases[@]}"; do
  if ((running == at_once)); then wait -n || status=1; running=$((running - 1)); fi
  run_case "$name" &
  running=$((running + 1))
done
while ((running > 0)); do wait -n || status=1; running=$((running - 1)); done
if [ "$device" = cuda ]; then compare_memory || status=1; fi
if [ "$(shared_pages)" != "$pages_before" ]; then
  echo "shared memory of the host: FAILED, there are other pages than before: $(shared_pages)"
  status=1
fi
[ -n "${GPU_RANKS_LOGS:-}" ] || rm -rf "$folder"
exit $status
