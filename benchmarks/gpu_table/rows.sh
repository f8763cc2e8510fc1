# shellcheck shell=bash disable=SC2034
# What the scripts of this folder share; each holds the cases of one model or layout, and sources this file.
#
#   benchmarks/gpu_table/ROW.sh [--megatron FILE] [--output FILE] [--commit ID] [--seconds N] [--dry-run] [FLAG...]
#
# A case that the output file has for this commit, kind of GPU and number of steps is not run again, so a script that was
# killed goes on where it was. A call takes 4 minutes at most; it ends with 75 where cases are left for the next call.
# Random tokens, 10 warm-up steps, the median of 20, whole steps with the optimizer, no recompute, no dropout.
#
# --megatron  the program; default build-cuda/bin/megatron.
# --output    default benchmarks/results/gpu_table.jsonl.
# --commit    what was built; default what the program says.
# --seconds   that a call takes at most; default 240.
# --dry-run   the same cases with tiny models on the CPU, two steps each: shows that their flags go together.
# FLAG        of megatron bench step, behind those of the case: --steps 5 for a look.
set -euo pipefail

megatron=build-cuda/bin/megatron output=benchmarks/results/gpu_table.jsonl commit="" seconds=240 is_dry=false extra=()
while [ $# -gt 0 ]; do
  case $1 in
    --megatron) megatron=${2:-}; shift 2 ;;
    --output) output=${2:-}; shift 2 ;;
    --commit) commit=${2:-}; shift 2 ;;
    --seconds) seconds=${2:-}; shift 2 ;;
    --dry-run) is_dry=true; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) extra+=("$1"); shift ;;
  esac
done
[ -x "$megatron" ] || { echo "gpu_table: $megatron is missing: build with -DMEGATRON_CUDA=ON, or give --megatron" >&2; exit 2; }
[ -n "$commit" ] || commit=$("$megatron" --version | sed -n 's/.*(\(.*\))$/\1/p')

# The device as rows name it, where somebody can say it: a row from another one is no reason to leave a case out.
gpu='[^"]*'
if ! $is_dry && gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null); then gpu=${gpus%%$'\n'*}; fi

# The last value of a flag.
value_of() { # FLAG DEFAULT WORD...
  local flag=$1 value=$2
  shift 2
  while [ $# -gt 0 ]; do
    case $1 in
      "$flag") value=${2:-} ;;
      "$flag"=*) value=${1#*=} ;;
    esac
    shift
  done
  echo "$value"
}

# Leaves layers, heads, batches and layout as they are: sizes of heads become 4, of sequences 16, and there are at most 16 experts.
# A CPU records no graphs.
shrunk=()
shrink() { # FLAG...
  shrunk=()
  local heads=0
  while [ $# -gt 0 ]; do
    case $1 in
      --num-attention-heads) heads=$2; shrunk+=("$1" "$2"); shift ;;
      --num-experts) shrunk+=("$1" $(($2 < 16 ? $2 : 16))); shift ;;
      --hidden-size | --seq-length | --vocab-size | --ffn-hidden-size | --cuda-graph-impl) shift ;;
      *) shrunk+=("$1") ;;
    esac
    shift
  done
  shrunk+=(--hidden-size $((4 * heads)) --ffn-hidden-size $((8 * heads)) --seq-length 16 --vocab-size 127
    --warm-up 1 --steps 1 --no-ceiling --num-threads 1)
}

# A case of the row. A case that fails is told, and the next one runs; the script then ends with 1. One that is not over in time,
# and had less than the whole of it, is left for the next call. One that had the whole waits one call, in which the others run.
status=0 has_run=false is_cut=false is_postponed=false
run_case() { # NAME FLAG...
  local name=$1 device=cuda code=0
  shift
  local flags=("$@")
  if $is_dry; then
    name="dry run: $name"
    shrink "$@"
    device=cpu flags=("${shrunk[@]}")
  fi
  local steps warm_up left=$((seconds - SECONDS))
  steps=$(value_of --steps 20 "${flags[@]}" "${extra[@]}")
  warm_up=$(value_of --warm-up 10 "${flags[@]}" "${extra[@]}")
  local row="\"name\":\"$name\",\"device\":\"$gpu\".*\"commit\":\"$commit\".*\"case\":\"step\""
  if grep -qs "$row.*\"steps\":$steps,\"warm_up\":$warm_up," "$output"; then
    echo "$name: $output has it for $commit, $steps steps after $warm_up"
    return
  fi
  if $is_cut || [ "$left" -le 0 ]; then
    is_cut=true
    return
  fi
  local mark="$name, $commit, $steps after $warm_up" marks=$output.not_over
  if grep -qsxF "$mark" "$marks"; then
    grep -vxF "$mark" "$marks" >"$marks.rest" || true
    mv "$marks.rest" "$marks"
    echo "$name: was not over in the call before, the next call tries it again"
    is_postponed=true
    return
  fi
  echo "$name"
  timeout "$left" "$megatron" bench step --name "$name" --commit "$commit" --json "$output" --device $device \
    --launch-time "$(date +%s.%N)" --lr 1e-5 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --attention-dropout 0 \
    --hidden-dropout 0 "${flags[@]}" "${extra[@]}" || code=$?
  if [ $code = 124 ] && $has_run; then
    is_cut=true
  elif [ $code != 0 ]; then
    echo "$name: FAILED with status $code" >&2
    status=1
    [ $code != 124 ] || echo "$mark" >>"$marks"
  fi
  has_run=true
}

finish() {
  if $is_cut || $is_postponed; then
    echo "after $SECONDS s: the next call goes on"
    [ $status != 0 ] || status=75
  fi
  exit $status
}

# shellcheck source=benchmarks/gpu_table/models.sh
source "$(dirname "${BASH_SOURCE[0]}")/models.sh"
