#!/usr/bin/env bash
# A Slurm of its own for the script that sources this: the nodes are slurmds of this machine, each with a name and folders of
# its own.
# shellcheck disable=SC2034  # slurm_missing is for who sources this

slurm_folder="" slurm_missing=""
slurm_daemons=()

stop_slurm() {
  if [ ${#slurm_daemons[@]} -gt 0 ]; then
    scancel --signal=KILL --user=root 2>/dev/null || true  # steps would outlive their daemons
    for ((i = 0; i < 20; ++i)); do [ -n "$(squeue -h 2>/dev/null)" ] || break; sleep 0.5; done
    kill "${slurm_daemons[@]}" 2>/dev/null || true
    wait "${slurm_daemons[@]}" || true
  fi
  slurm_daemons=()
  [ -z "$slurm_folder" ] || rm -rf "$slurm_folder"
}

# write_slurm_configuration NUM_GPUS NODE...
write_slurm_configuration() {
  local num_gpus=$1 port=$((20000 + BASHPID % 9000 * 3)) ports="" i
  shift
  for ((i = 1; i <= $#; ++i)); do ports+=${ports:+,}$((port + i)); done
  cat >"$slurm_folder/slurm.conf" <<CONFIGURATION
ClusterName=test
FirstJobId=$((1 + BASHPID % 60000))
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$slurm_folder/state
SlurmdSpoolDir=$slurm_folder/spool-%n
SlurmctldPidFile=$slurm_folder/slurmctld.pid
SlurmdPidFile=$slurm_folder/slurmd-%n.pid
TmpFS=$slurm_folder/tmp
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=$(IFS=,; echo "$*") NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$ports CPUs=8$([ "$num_gpus" = 0 ] || echo " Gres=gpu:$num_gpus")
PartitionName=all Nodes=ALL Default=YES
CONFIGURATION
  echo "CgroupPlugin=cgroup/v1" >"$slurm_folder/cgroup.conf"  # uses none, and needs none to be mounted
  : >"$slurm_folder/gres.conf"
  [ "$num_gpus" = 0 ] || echo "Name=gpu File=/dev/nvidia[0-$((num_gpus - 1))]" >"$slurm_folder/gres.conf"
}

# start_slurm NUM_GPUS NODE...: nodes with the first NUM_GPUS GPUs of this machine each. Exports SLURM_CONF. Where that
# cannot be, it fails, and slurm_missing says why. Call stop_slurm at the end, in any case.
start_slurm() {
  local num_gpus=$1 tool node
  shift
  [ "$(id -u)" = 0 ] || { slurm_missing="only root may start a Slurm of its own"; return 1; }
  for tool in slurmctld slurmd srun sinfo squeue scancel unshare; do
    command -v "$tool" >/dev/null || { slurm_missing="$tool is not installed: apt-get install slurmctld slurmd slurm-client"; return 1; }
  done
  slurm_folder=$(mktemp -d)
  mkdir "$slurm_folder/state" "$slurm_folder/tmp" "${@/#/$slurm_folder/spool-}"
  write_slurm_configuration "$num_gpus" "$@"
  export SLURM_CONF=$slurm_folder/slurm.conf
  slurmctld -c -D -f "$SLURM_CONF" >"$slurm_folder/slurmctld.log" 2>&1 &
  slurm_daemons+=($!)
  for node; do  # PMIx has folders of the same names on each node
    unshare --mount --uts bash -c "hostname $node && mount -t tmpfs none '$slurm_folder/tmp' && exec slurmd -N $node -D -f '$SLURM_CONF'" \
      >"$slurm_folder/$node.log" 2>&1 &
    slurm_daemons+=($!)
  done
  for ((i = 0; i < 60; ++i)); do
    [ "$(sinfo -h -o '%T %D' 2>/dev/null)" = "idle $#" ] && return
    sleep 0.5
  done
  slurm_missing="this machine's Slurm does not start: $(tail -qn 2 "$slurm_folder"/*.log)"
  return 1
}
