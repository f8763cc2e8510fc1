#!/usr/bin/env bash
# Runs what takes too long for every day and stores the result in tests/parallel/results/full_DATE.md: every valid layout
# against one rank, checkpoints between 256 random pairs of layouts, and training across two network namespaces.
#
#   tests/parallel/run_full.sh [--build-dir DIR] [--jobs N] [--result FILE] [--matrix-record FILE --matrix-machine TEXT]
#
# --build-dir  where full_matrix and megatron are built (default: build)
# --jobs       processes (default: half of the cores, as a case has up to 8 ranks)
# --result     default: tests/parallel/results/full_DATE.md
# --matrix-record   stores this record instead of running the matrix: what `full_matrix --record FILE --commit COMMIT` has
#                   noted on another machine, maybe of an earlier commit; the result says so
# --matrix-machine  that machine, in words
#
# A run that was stopped goes on where it was, case by case, as long as the code is the same; what has been run so far is
# stored all the same. Exit status: 0 if everything was run and passed.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() {
  echo "run_full: $*" >&2
  exit 2
}

build_dir=build jobs=$((($(nproc) + 1) / 2)) result=tests/parallel/results/full_$(date -u +%F).md
record="" machine=""
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || fail "$1 needs a value"
  case $1 in
    --build-dir) build_dir=$2 ;;
    --jobs) jobs=$2 ;;
    --result) result=$2 ;;
    --matrix-record) record=$2 ;;
    --matrix-machine) machine=$2 ;;
    *) fail "unknown argument '$1'. Known: --build-dir --jobs --result --matrix-record --matrix-machine" ;;
  esac
  shift 2
done
[ -z "$record" ] || [ -r "$record" ] || fail "--matrix-record $record cannot be read"
[ "${record:+given}" = "${machine:+given}" ] || fail "--matrix-record and --matrix-machine belong together"

# The commit, and what differs from it: a record of other code is not gone on with.
code() {
  local text
  text=$(git rev-parse --short=12 HEAD)
  git diff --quiet HEAD -- . "$apart" || text+=" with changes $(git diff HEAD -- . "$apart" | sha256sum | head -c 8)"
  echo "$text"
}

apart=':!tests/parallel/results'
commit=$(code)
grep -qx "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$build_dir/CMakeCache.txt" 2>/dev/null ||
  fail "$build_dir is not a build of $PWD: cmake -S . -B $build_dir"
# What runs is what the commit says: nothing is left to build, and nobody has changed the code meanwhile.
cmake --build "$build_dir" --target full_matrix megatron >"$build_dir/full_matrix_build.log" 2>&1 ||
  { tail -n 20 "$build_dir/full_matrix_build.log" >&2; fail "$build_dir cannot be built"; }
[ "$(code)" = "$commit" ] || fail "the code was changed while it was built; start again"
program=$build_dir/tests/full_matrix
here="$(uname -m), $(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
matrix_commit=$commit runs_matrix=false
if [ -z "$record" ]; then
  runs_matrix=true record=$build_dir/full_matrix_record.tsv machine="$here; $jobs processes"
else
  matrix_commit=$(sed -n '1s/^commit //p' "$record")
  [ -n "$matrix_commit" ] || fail "$record does not begin with its commit: it is no record of full_matrix"
fi

summary() { "$program" --record "$record" --commit "$matrix_commit" --summary; }

store() {
  mkdir -p "$(dirname "$result")"
  {
    echo "# Every layout, $(date -u +%F)"
    echo
    echo "The matrix: commit $matrix_commit; $machine."
    echo "Ten steps in fp64 at --lr 1e-3: losses within 1e-11 and gradient norms within 1e-10 of one rank's, at every"
    echo "step and on every rank. Checkpoints: the same bits after saving and loading, the next loss within 1e-11."
    echo
    summary || true
    echo
    echo "Two hosts (network namespaces, TCP): commit $commit; $two_hosts_date UTC; $here."
    echo
    sed 's/^/    /' "$build_dir/two_hosts.log"
  } >"$result"
  echo "stored $result"
}

status=0 two_hosts_date=$(date -u '+%F %H:%M')
tests/system/two_hosts.sh "$build_dir/bin/megatron" 2>&1 | tee "$build_dir/two_hosts.log" || status=$?
[ "$status" != 77 ] || status=0 # NOT RUN: the stored line says why
trap store EXIT
export OMP_WAIT_POLICY=passive
if $runs_matrix; then
  "$program" --record "$record" --commit "$commit" --jobs "$jobs" >/dev/null || status=1
else
  summary >/dev/null || status=1
fi
[ "$status" = 0 ]
