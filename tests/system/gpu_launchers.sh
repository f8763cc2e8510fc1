#!/usr/bin/env bash
# How gpu_ranks.sh, which sources this, starts ranks with a GPU each, and its cases of launchers: under each of them ranks have the
# same numbers. It has $program, $here, $folder, $work, $seconds_of_a_run, fail, trains, same_numbers, disturb and ends.
# shellcheck disable=SC2154
# shellcheck source=tests/system/own_slurm.sh
source "$here/own_slurm.sh"
torchrun=()
if command -v torchrun >/dev/null; then
  torchrun=(torchrun)
elif python3 -c "import torch.distributed.run" 2>/dev/null; then
  torchrun=(python3 -m torch.distributed.run)
fi
port=$((20000 + $$ % 9000))

# under LAUNCHER NUM_RANKS FLAG...: trains. torchrun serves the store of keys itself, or has rank 0 do it.
under() {
  local launcher=$1 num_ranks=$2
  shift 2
  case $launcher in
    own) timeout "$seconds_of_a_run" "$program" pretrain_gpt --nproc-per-node "$num_ranks" "$@" ;;
    torchrun) timeout "$seconds_of_a_run" "${torchrun[@]}" --no-python --nproc-per-node "$num_ranks" --master-port "$port" \
      "$program" pretrain_gpt "$@" ;;
    torchrun_standalone) timeout "$seconds_of_a_run" "${torchrun[@]}" --standalone --no-python --nproc-per-node "$num_ranks" \
      "$program" pretrain_gpt "$@" ;;
    mpirun) timeout "$seconds_of_a_run" "$here/mpirun.sh" "$num_ranks" "$program" pretrain_gpt "$@" ;;
    variables_of_srun) under_variables "$num_ranks" "" "$@" ;;
    srun) timeout "$seconds_of_a_run" srun --mpi=none --kill-on-bad-exit=1 --gpus "$num_ranks" -n "$num_ranks" \
      "$program" pretrain_gpt "$@" ;;
    srun_gpu_per_task) timeout "$seconds_of_a_run" srun --mpi=none -n "$num_ranks" --gpus-per-task 1 "$program" pretrain_gpt "$@" ;;
    one_visible) under_variables_of_mpirun "$num_ranks" "$@" ;;
  esac
}

# under_variables NUM_RANKS WORDS_OF_LAST FLAG...: with the variables that a step of srun has; the last rank has WORDS_OF_LAST
# too. @return the first rank's exit status
under_variables() {
  local num_ranks=$1 words_of_last=$2 rank status=0 ranks=() more=() step=$BASHPID
  shift 2
  for ((rank = 0; rank < num_ranks; ++rank)); do
    if ((rank == num_ranks - 1)); then read -ra more <<<"$words_of_last"; fi
    SLURM_JOB_ID=$$ SLURM_STEP_ID=$step SLURM_PROCID=$rank SLURM_NTASKS=$num_ranks SLURM_STEP_NUM_TASKS=$num_ranks \
      SLURM_LOCALID=$rank SLURM_STEP_TASKS_PER_NODE=$num_ranks SLURM_STEP_NODELIST=localhost \
      timeout "$seconds_of_a_run" "$program" pretrain_gpt "$@" ${more[@]+"${more[@]}"} &
    ranks+=($!)
  done
  wait "${ranks[0]}" || status=$?
  wait "${ranks[@]}"
  return "$status"
}

# under_variables_of_mpirun NUM_RANKS FLAG...: with the variables that mpirun sets, from a script of the user's that shows each
# rank its GPU alone, or GPU visible_gpus[rank]. @return the first rank's exit status
under_variables_of_mpirun() {
  local num_ranks=$1 rank status=0 ranks=() job=$BASHPID
  shift
  for ((rank = 0; rank < num_ranks; ++rank)); do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$num_ranks OMPI_COMM_WORLD_LOCAL_RANK=$rank \
      OMPI_COMM_WORLD_LOCAL_SIZE=$num_ranks PMIX_NAMESPACE=$job CUDA_VISIBLE_DEVICES=${visible_gpus[rank]:-$rank} \
      timeout "$seconds_of_a_run" "$program" pretrain_gpt "$@" &
    ranks+=($!)
  done
  wait "${ranks[0]}" || status=$?
  wait "${ranks[@]}"
  return "$status"
}

# with_slurm COMMAND...: in a Slurm that has two GPUs, unless there can be none
with_slurm() {
  trap 'stop_slurm >/dev/null 2>&1' EXIT
  TMPDIR=$work start_slurm 2 gpu-host || { echo "NOT RUN: $slurm_missing"; return; }
  "$@"
}

case_launch_torchrun() { launch_as_own torchrun; }
case_launch_torchrun_standalone() { launch_as_own torchrun_standalone; }
case_launch_mpirun() { launch_as_own mpirun; }
case_launch_variables_of_srun() { launch_as_own variables_of_srun; }
case_launch_srun() { with_slurm launch_as_own srun; }
case_launch_srun_gpu_per_task() { with_slurm launch_as_own srun_gpu_per_task; }
case_launch_one_visible() { launch_as_own one_visible; }
# Copies between GPUs of which each rank sees its own alone.
case_launch_one_visible_tensor() {
  trains own_tensor under own 2 "${launched[@]}" "${tensor[@]}" && trains one_visible under one_visible 2 "${launched[@]}" "${tensor[@]}" &&
    same_numbers 6 own_tensor one_visible && echo "6 iterations, all digits of --nproc-per-node 2"
}
launch_as_own() {
  case $1 in
    torchrun*) [ ${#torchrun[@]} -gt 0 ] || { echo "NOT RUN: there is no torchrun"; return; } ;;
    mpirun) command -v mpirun >/dev/null || { echo "NOT RUN: there is no mpirun"; return; } ;;
  esac
  trains "$1" under "$1" 2 "${launched[@]}" && cp "$folder/own.jsonl" "$work/" && same_numbers 6 own "$1" &&
    echo "6 iterations, all digits of --nproc-per-node 2"
}

# Launchers end the ranks that are left when one is killed.
case_kill_torchrun() {
  [ ${#torchrun[@]} -gt 0 ] || { echo "NOT RUN: there is no torchrun"; return; }
  disturb torchrun_standalone KILL && ends any 40000 "Signal 9 \(SIGKILL\)|exitcode +: -9|SIGKILL"
}
case_kill_mpirun() {
  command -v mpirun >/dev/null || { echo "NOT RUN: there is no mpirun"; return; }
  disturb mpirun KILL && ends 137 10000 "exited on signal 9" "\[rank 0\] ended by SIGTERM after iteration [0-9]+"
}
case_kill_srun() { with_slurm kill_srun; }
kill_srun() { disturb srun KILL && ends 143 10000 "task 1: Killed" "\[rank 0\] ended by SIGTERM after iteration [0-9]+"; }

# Megatron-LM's scripts ask for one hardware queue, in which streams of a pipeline would wait for each other without an end.
case_launch_one_queue() {
  local run=("${launched[@]}" --pipeline-model-parallel-size 2)
  trains own_pipeline under own 2 "${run[@]}" && CUDA_DEVICE_MAX_CONNECTIONS=1 trains one_queue under own 2 "${run[@]}" || return
  grep -q "CUDA_DEVICE_MAX_CONNECTIONS=1 becomes 32" "$work/one_queue.log" || fail "nobody is told" || return
  same_numbers 6 own_pipeline one_queue && echo "6 iterations, all digits of the queues that a step needs"
}
