#!/usr/bin/env bash
# Runs a program on ranks that are processes, as ctest does for tests labelled mpi.
#
#   tests/system/mpirun.sh NUM_RANKS PROGRAM [ARGUMENT...]
#
# Where Open MPI's mpirun is not installed it says so and exits with 77, which ctest counts as skipped.
set -euo pipefail

if ! command -v mpirun >/dev/null || ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
  echo "SKIPPED: Open MPI's mpirun is not installed. Install it with: scripts/install_dependencies.sh mpi"
  exit 77
fi
# Root may run it in containers; ranks may outnumber cores; neither fabrics nor the ssh to other hosts are looked for.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_plm_rsh_agent=${OMPI_MCA_plm_rsh_agent:-sh}
export OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader,tcp} OMPI_MCA_pml=ob1 OMPI_MCA_mpi_yield_when_idle=0
exec mpirun -np "$1" "${@:2}"
