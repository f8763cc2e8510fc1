#!/usr/bin/env bash
# Trains across two network namespaces that act as two hosts, with names, addresses and Open MPI daemons of their own, so
# that all bytes go over TCP; the losses and gradient norms must be those of ranks as threads, digit by digit. The
# layouts are those of tests/commands/named_layouts.txt that have a line two_hosts.
#
#   tests/system/two_hosts.sh PROGRAM      PROGRAM: the megatron to run, default build/bin/megatron
#
# Needs root, ip netns and Open MPI's mpirun; else it prints NOT RUN with the reason and exits with 77, which ctest counts
# as skipped.
set -euo pipefail

program=$(realpath "${1:-build/bin/megatron}")
named_layouts=$(dirname "$(realpath "$0")")/../commands/named_layouts.txt
hosts=("megatron-a-$$" "megatron-b-$$")
network=10.213.$(($$ % 250))
folder=""

not_run() {
  echo "NOT RUN: $*"
  exit 77
}

clean_up() {
  for host in "${hosts[@]}"; do ip netns del "$host" 2>/dev/null || true; done
  [ -z "$folder" ] || rm -rf "$folder"
}

make_hosts() {
  [ "$(id -u)" = 0 ] || not_run "only root may make network namespaces"
  mpirun --version 2>/dev/null | grep -q 'Open MPI' ||
    not_run "Open MPI's mpirun is not installed: scripts/install_dependencies.sh mpi"
  command -v ip >/dev/null || not_run "ip is not installed: apt-get install iproute2"
  trap clean_up EXIT
  folder=$(mktemp -d)
  for host in "${hosts[@]}"; do
    ip netns add "$host" 2>"$folder/error" || not_run "this machine refuses network namespaces: $(cat "$folder/error")"
    ip -n "$host" link set lo up
  done
  ip link add name eth0 netns "${hosts[0]}" type veth peer name eth0 netns "${hosts[1]}" 2>"$folder/error" ||
    not_run "this machine refuses virtual network interfaces: $(cat "$folder/error")"
  for number in 1 2; do
    ip -n "${hosts[number - 1]}" address add "$network.$number/24" dev eth0
    ip -n "${hosts[number - 1]}" link set eth0 up
  done
  cat >"$folder/on_host" <<AGENT
#!/usr/bin/env bash
# What ssh is elsewhere: on_host ADDRESS COMMAND...
case \$1 in
  *.1) host=${hosts[0]} ;;
  *) host=${hosts[1]} ;;
esac
shift
exec ip netns exec "\$host" unshare --uts bash -c "hostname \$host; \$*"
AGENT
  chmod +x "$folder/on_host"
}

# over_both NUM_RANKS COMMAND...
over_both() {
  local num_ranks=$1
  shift
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  "$folder/on_host" "$network.1" mpirun -np "$num_ranks" --host "$network.1:$num_ranks,$network.2:$num_ranks" \
    --map-by node --bind-to none --mca rmaps_base_oversubscribe 1 --mca mpi_yield_when_idle 0 \
    --mca plm_rsh_agent "$folder/on_host" --mca pml ob1 --mca btl self,tcp \
    --mca btl_tcp_if_include "$network.0/24" --mca oob_tcp_if_include "$network.0/24" "$@"
}

# Loss and gradient norm of each iteration, all digits.
numbers() { grep -oE '"(lm_loss|grad_norm)":[^,]*' "$1"; }

# check NAME: a layout of named_layouts.txt
check() {
  local name=$1 num_ranks flags layout
  num_ranks=$(sed -n "s/^layout $name \([0-9]*\).*/\1/p" "$named_layouts")
  [ -n "$num_ranks" ] || { echo "$name: FAILED, $named_layouts has no such layout"; return 1; }
  read -r -a layout < <(sed -n "s/^layout $name [0-9]*//p" "$named_layouts")
  mapfile -t flags < <(sed -n 's/^training //p' "$named_layouts" | tr ' ' '\n')
  flags+=("${layout[@]}")
  "$program" pretrain_gpt "${flags[@]}" --nproc-per-node "$num_ranks" --log-jsonl "$folder/threads" >/dev/null
  over_both "$num_ranks" "$program" pretrain_gpt "${flags[@]}" --log-jsonl "$folder/hosts" >"$folder/log" 2>&1 ||
    { cat "$folder/log"; echo "$name: FAILED"; return 1; }
  numbers "$folder/threads" >"$folder/expected"
  [ "$(wc -l <"$folder/expected")" = 8 ] || { echo "$name: FAILED, not 4 iterations"; return 1; }
  numbers "$folder/hosts" | diff "$folder/expected" - || { echo "$name: FAILED, other numbers"; return 1; }
  rm "$folder/threads" "$folder/hosts"
  echo "$name: 4 iterations across two hosts equal those of $num_ranks threads"
}

make_hosts
names=$(over_both 2 hostname | sort | tr '\n' ' ')
[ "$names" = "${hosts[*]} " ] || { echo "the ranks run on $names, not on both hosts"; exit 1; }
mapfile -t layouts < <(sed -n 's/^two_hosts //p' "$named_layouts")
for name in "${layouts[@]}"; do check "$name"; done
