#!/usr/bin/env bash
# Shows that a change of form changes no number: trains the configurations of configurations.txt with two programs and
# compares losses, gradient norms, validation losses and the bytes of checkpoints, after a resume in the middle too.
#
#   tests/system/compare_programs.sh [--only REGEX] [--keep DIR] OLD NEW
#
# OLD, NEW  two builds' bin/megatron.
# --only    the configurations whose names match.
# --keep    where the runs' files stay; default: a temporary folder that goes.
#
# The last line counts; exit status 1 if anything differs or a run fails. Stored arguments are not compared, for a new flag changes
# no number. Needs compare_checkpoints in the build of one of the programs.
set -euo pipefail

fail() {
  echo "compare_programs: $*" >&2
  exit 2
}

only="" keep="" compare="" programs=()
while [ $# -gt 0 ]; do
  case $1 in
    --only) [ $# -ge 2 ] || fail "--only needs a value"; only=$2; shift ;;
    --keep) [ $# -ge 2 ] || fail "--keep needs a value"; keep=$2; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    -*) fail "unknown argument '$1'. Known: --only --keep" ;;
    *) programs+=("$(realpath "$1")") ;;
  esac
  shift
done
[ ${#programs[@]} = 2 ] || fail "give two programs: OLD NEW"
for program in "${programs[@]}"; do [ -x "$program" ] || fail "$program is no program"; done
for program in "${programs[@]}"; do
  candidate=$(dirname "$(dirname "$program")")/tests/compare_checkpoints
  if [ -x "$candidate" ]; then compare=$candidate; fi
done
[ -n "$compare" ] || fail "neither build has tests/compare_checkpoints: build it (cmake --build build --target compare_checkpoints)"
list=$(dirname "$(realpath "$0")")/configurations.txt
if [ -n "$keep" ]; then
  mkdir -p "$keep"
  work=$(realpath "$keep")
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi

declare -A models=()
training=() names=() flags=()
while read -r kind rest; do
  case $kind in
    '' | '#'*) ;;
    training) training+=("$rest") ;;
    model) models[${rest%% *}]=${rest#* } ;;
    *:) names+=("${kind%:}"); flags+=("$rest") ;;
    *) fail "$list: a line that begins with '$kind'" ;;
  esac
done <"$list"

# words TEXT: its words as an array `words`, quoted ones as one.
words() { mapfile -t words < <(xargs -n 1 printf '%s\n' <<<"$1"); }

# train PROGRAM FOLDER FLAG...: four steps, then those after the second again, from its checkpoint.
train() {
  local program=$1 folder=$2
  shift 2
  mkdir -p "$folder/resumed"
  (cd "$folder" && "$program" pretrain_gpt "$@" --save saved --log-jsonl numbers.jsonl >log 2>&1 </dev/null) || return
  (cd "$folder" && "$program" pretrain_gpt "$@" --load saved --ckpt-step 2 --save resumed/saved --log-jsonl resumed/numbers.jsonl \
    >>log 2>&1 </dev/null)
}

# numbers FILE: what was computed in each line, without times and other facts.
numbers() { grep -oE '"(iteration|[a-z_0-9-]*lm_loss[a-z_0-9-]*|grad_norm|loss_scale|learning_rate|skipped_iterations)":[^,}]*' "$1" | paste -sd ' '; }
# same_tensors FOLDER FOLDER: prints nothing if the checkpoints have the same.
same_tensors() { "$compare" "$1" "$2" >>"$work/$name/log" 2>&1; }

num_same=0 num_failed_alike=0 different=()
for i in "${!names[@]}"; do
  name=${names[$i]}
  [[ $name =~ $only ]] || continue
  words "${flags[$i]}"
  model=${words[0]}
  [ -n "${models[$model]:-}" ] || fail "$list: $name has no model '$model'"
  own=("${words[@]:1}")
  words "${models[$model]} ${training[*]}"
  statuses=() differences=""
  for side in 0 1; do
    status=0
    train "${programs[$side]}" "$work/$name/$side" "${words[@]}" ${own[@]+"${own[@]}"} || status=$?
    statuses+=("$status")
  done
  old=$work/$name/0 new=$work/$name/1
  if [ "${statuses[0]}" != "${statuses[1]}" ]; then
    differences+=" exit status ${statuses[0]} and ${statuses[1]},"
  elif [ "${statuses[0]}" != 0 ]; then
    echo "$name: both fail with ${statuses[0]}: $(tail -n 1 "$old/log")"
    num_failed_alike=$((num_failed_alike + 1))
    continue
  else
    for part in . resumed; do
      [ "$(numbers "$old/$part/numbers.jsonl")" = "$(numbers "$new/$part/numbers.jsonl")" ] || differences+=" numbers in $part,"
    done
    for iteration in 0000002 0000004; do
      same_tensors {"$old","$new"}/saved/iter_$iteration || differences+=" tensors of iteration ${iteration##*0},"
    done
    for side in "$old" "$new"; do
      same_tensors "$side"/{,resumed/}saved/iter_0000004 || differences+=" a resumed run and one that was not stopped,"
    done
  fi
  if [ -n "$differences" ]; then
    echo "$name: DIFFERENT:${differences%,}"
    different+=("$name")
  else
    echo "$name: same"
    num_same=$((num_same + 1))
  fi
  [ -n "$keep" ] || rm -rf "${work:?}/$name"
done
echo "$num_same the same, ${#different[@]} different, $num_failed_alike failed with both${different[*]:+: ${different[*]}}"
[ ${#different[@]} = 0 ] && [ "$num_failed_alike" = 0 ]
