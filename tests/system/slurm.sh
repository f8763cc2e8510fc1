#!/usr/bin/env bash
# Trains under srun: a Slurm of this script's own has two nodes on this machine, each a slurmd with a name and folders of its
# own. The losses and gradient norms must be those of ranks as threads, digit by digit. The layouts are those of
# tests/commands/named_layouts.txt that have a line two_hosts. Then ranks without PMIx, and ranks that are lost.
#
#   tests/system/slurm.sh PROGRAM      PROGRAM: the megatron to run, default build/bin/megatron
#
# Needs root, Slurm with PMIx (apt-get install slurmctld slurmd slurm-client) and Open MPI's library; else it prints NOT RUN
# with the reason and exits with 77, which ctest counts as skipped.
set -euo pipefail

program=$(realpath "${1:-build/bin/megatron}")
here=$(dirname "$(realpath "$0")")
named_layouts=$here/../commands/named_layouts.txt
nodes=(node-a node-b)
folder=""
# shellcheck source=tests/system/own_slurm.sh
source "$here/own_slurm.sh"

not_run() {
  echo "NOT RUN: $*"
  exit 77
}

clean_up() {
  stop_slurm
  [ -z "$folder" ] || rm -rf "$folder"
}

# over_both NUM_RANKS COMMAND...
over_both() {
  local num_ranks=$1
  shift
  timeout 120 srun --mpi=pmix -N 2 --ntasks-per-node $((num_ranks / 2)) "$@"
}

# Loss and gradient norm of each iteration, all digits.
numbers() { grep -oE '"(lm_loss|grad_norm)":[^,]*' "$1"; }

# check NAME: a layout of named_layouts.txt
check() {
  local name=$1 num_ranks layout
  num_ranks=$(sed -n "s/^layout $name \([0-9]*\).*/\1/p" "$named_layouts")
  read -r -a layout < <(sed -n "s/^layout $name [0-9]*//p" "$named_layouts")
  "$program" pretrain_gpt "${training[@]}" "${layout[@]}" --nproc-per-node "$num_ranks" \
    --log-jsonl "$folder/threads" >/dev/null
  over_both "$num_ranks" "$program" pretrain_gpt "${training[@]}" "${layout[@]}" --log-jsonl "$folder/steps" \
    >"$folder/log" 2>&1 || { cat "$folder/log"; echo "$name: FAILED"; return 1; }
  numbers "$folder/threads" >"$folder/expected"
  [ "$(wc -l <"$folder/expected")" = 8 ] || { echo "$name: FAILED, not 4 iterations"; return 1; }
  numbers "$folder/steps" | diff "$folder/expected" - || { echo "$name: FAILED, other numbers"; return 1; }
  rm "$folder/threads" "$folder/steps"
  echo "$name: 4 iterations under srun on two nodes equal those of $num_ranks threads"
}

# Without PMIx ranks cannot find each other: they say how they would.
check_refusal() {
  local status=0
  srun --mpi=none -n 2 "$program" pretrain_gpt "${training[@]}" >"$folder/log" 2>&1 || status=$?
  if [ $status = 2 ] && grep -q '^ *srun --mpi=pmix' "$folder/log"; then
    echo "srun --mpi=none: refused with the command that works"
  else
    cat "$folder/log"
    echo "srun --mpi=none: FAILED, status $status"
    return 1
  fi
}

# process_of RANK: the megatron that is this rank of the step under way
process_of() {
  local process
  for process in $(pgrep -f "$folder/steps"); do
    tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx "SLURM_CONF=$SLURM_CONF" &&
      tr '\0' '\n' <"/proc/$process/environ" | grep -qx "SLURM_PROCID=$1" && echo "$process" && return
  done
}

# check_lost_rank SIGNAL STATUS TEXT...: rank 2 of four gets a signal after a few steps. All end within the timeout of 2
# seconds and 5 more, with this status, and the log has these texts.
check_lost_rank() {
  local signal=$1 expected=$2 step status=0 process="" text
  shift 2
  : >"$folder/steps"
  over_both 4 "$program" pretrain_gpt "${training[@]}" --tensor-model-parallel-size 2 --train-iters 1000000 \
    --distributed-timeout-seconds-after-init 2 --log-jsonl "$folder/steps" >"$folder/log" 2>&1 &
  step=$!
  while kill -0 $step 2>/dev/null && [ "$(wc -l <"$folder/steps")" -lt 3 ]; do sleep 0.1; done
  process=$(process_of 2)
  SECONDS=0
  kill "-$signal" "$process"
  wait $step || status=$?
  for text in "$@"; do
    grep -qF "$text" "$folder/log" || { cat "$folder/log"; echo "$signal of a rank: FAILED, no '$text'"; return 1; }
  done
  if [ $status != "$expected" ] || [ $SECONDS -gt 7 ]; then
    tail -n 40 "$folder/log"
    echo "$signal of a rank: FAILED, status $status after $SECONDS s"
    return 1
  fi
  echo "$signal of a rank: named, and all ended with status $status"
}

mapfile -t training < <(sed -n 's/^training //p' "$named_layouts" | tr ' ' '\n')
trap clean_up EXIT
start_slurm 0 "${nodes[@]}" || not_run "$slurm_missing"
srun --mpi=list 2>&1 | grep -q pmix || not_run "this srun has no PMIx"
folder=$(mktemp -d)
names=$(over_both 2 hostname | sort | tr '\n' ' ')
[ "$names" = "${nodes[*]} " ] || { echo "the ranks run on $names, not on both nodes"; exit 1; }
mapfile -t layouts < <(sed -n 's/^two_hosts //p' "$named_layouts")
for name in "${layouts[@]}"; do check "$name"; done
check_refusal
check_lost_rank KILL 137 "task 2: Killed"
check_lost_rank STOP 7 "[rank 0] " "[rank 1] " "[rank 3] " "Rank 2 does not answer: its process hangs or is lost."
