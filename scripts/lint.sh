#!/usr/bin/env bash
# Checks the form of the code: layers, the map, links of documents, labels of tests, lengths of functions, format, scripts,
# and clang-tidy on changed files.
#
#   scripts/lint.sh [--fix] [--tidy all|changed|none] [--since COMMIT] [--seconds N] [--build-dir DIR]
#
# --fix      rewrites files to the format instead of reporting them.
# --tidy     which .cpp files clang-tidy reads: those that differ from the commit where this branch left its upstream, or from
#            the commit before the last where it has not left it (changed, the default; tools/lint_base.py), all (an hour),
#            or none. Tests that differ must compile by themselves, also where builds compile several sources together.
# --build-dir  whose compile commands are used; default: build/lint, which is configured here.
# --since    the commit that "changed" compares with instead.
# --seconds  after which clang-tidy is stopped, and tests that compile by themselves too: said, but no failure. Default: 3600.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "lint: $*" >&2
  exit 2
}

# The formats of clang-format's versions differ: it must be 14.
clang_tool() {
  local name=$1
  if command -v "$name-14" >/dev/null; then
    echo "$name-14"
  elif "$name" --version 2>/dev/null | grep -q 'version 14\.'; then
    echo "$name"
  else
    fail "$name 14 was not found. Install it with: scripts/install_dependencies.sh lint"
  fi
}

sources() { git ls-files -z -- '*.cpp' '*.h' '*.cu' '*.cuh'; }

check_layers() { python3 tools/check_layers.py && python3 tools/check_layers_test.py 2>&1 | tail -n 1; }

check_rooms() { python3 tools/check_rooms.py && python3 tools/check_rooms_test.py 2>&1 | tail -n 1; }

check_links() { python3 tools/check_links.py && python3 tools/check_links_test.py 2>&1 | tail -n 1; }

check_golden_labels() {
  python3 tools/check_golden_labels.py && python3 tools/check_golden_labels_test.py 2>&1 | tail -n 1
}

check_function_lengths() {
  python3 tools/check_function_lengths.py && python3 tools/check_function_lengths_test.py 2>&1 | tail -n 1
}

check_field_readers() {
  python3 tools/check_field_readers.py && python3 tools/check_field_readers_test.py 2>&1 | tail -n 1
}

check_build_times() { python3 tools/build_times_test.py 2>&1 | tail -n 1 | grep -x OK; }

check_lint_base() { python3 tools/lint_base_test.py 2>&1 | tail -n 1 | grep -x OK; }

check_format() {
  local tool
  tool=$(clang_tool clang-format)
  if $fix; then
    sources | xargs -0 "$tool" -i
  else
    sources | xargs -0 -P "$(nproc)" -n 40 "$tool" --dry-run --Werror
  fi
}

check_scripts() {
  local scripts
  mapfile -t scripts < <(git ls-files -- '*.sh' .ci/run)
  shellcheck "${scripts[@]}"
}

# What is not compiled there, such as files for GPUs, may lack its headers.
files_to_read() { # PATTERN...
  if [ "$tidy" = all ]; then
    git ls-files -- "$@"
  else
    git diff --name-only --diff-filter=d "$base" -- "$@"
  fi | while read -r file; do
    if grep -q "/$file\"" "$build_dir/compile_commands.json"; then echo "$file"; fi
  done
}

# Every source has a compile command of its own only where MEGATRON_UNITY is off.
prepare_build_dir() {
  if [ -z "$build_dir" ]; then
    build_dir=build/lint
    cmake -S . -B "$build_dir" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMEGATRON_TESTS=ON -DMEGATRON_UNITY=OFF >/dev/null
  elif [ ! -e "$build_dir/compile_commands.json" ]; then
    fail "$build_dir has no compile_commands.json. Make it with: cmake -S . -B $build_dir"
  fi
}

check_tests_compile() {
  local files
  mapfile -t files < <(files_to_read 'tests/*.cpp')
  [ ${#files[@]} -gt 0 ] || return 0
  timeout "$seconds" tools/compile_alone.py "$build_dir/compile_commands.json" "${files[@]}"
}

# Flags that tools/clang_tidy_prelude.h cannot set: warnings of g++, pragmas of g++, and _Float16.
tidy_arguments=(-include "$PWD/tools/clang_tidy_prelude.h" -Wno-unknown-warning-option -Wno-unknown-pragmas -mavx512fp16)
# clang comes without omp.h; g++ has one, behind headers of which clang has its own.
tidy_arguments+=("-idirafter$(g++ -print-file-name=include)")

check_tidy() {
  local tool files
  tool=$(clang_tool clang-tidy)
  mapfile -t files < <(files_to_read 'megatron/*.cpp' 'commands/*.cpp')
  [ ${#files[@]} -gt 0 ] || return 0
  local status=0
  printf '%s\n' "${files[@]}" | timeout "$seconds" xargs -P "$(nproc)" -n 1 "$tool" -p "$build_dir" --quiet \
    "${tidy_arguments[@]/#/--extra-arg=}" 2>/dev/null || status=$?  # counts of suppressed warnings
  [ "$status" != 124 ] || echo "  the $seconds s were over before all of the ${#files[@]} files were read"
  return "$status"
}

run() {
  local name=$1
  shift
  local output status=0
  output=$("$@" 2>&1) || status=$?
  if [ "$status" = 0 ]; then
    echo "  ok      $name"
  elif [ "$status" = 124 ] && ! grep -q 'error:\|warning:' <<<"$output"; then
    printf '%s\n' "$output"
    echo "  partly  $name"
  else
    printf '%s\n' "$output"
    echo "  FAILED  $name"
    failures=$((failures + 1))
  fi
}

fix=false tidy=changed since="" base="" build_dir="" seconds=3600 failures=0
while [ $# -gt 0 ]; do
  case $1 in
    --fix) fix=true ;;
    --tidy) tidy=${2:-}; shift ;;
    --since) since=${2:-}; shift ;;
    --seconds) seconds=${2:-}; shift ;;
    --build-dir) build_dir=${2:-}; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) fail "unknown argument '$1'. Known: --fix --tidy --since --seconds --build-dir" ;;
  esac
  shift
done
[[ $tidy =~ ^(all|changed|none)$ ]] || fail "--tidy '$tidy' is not known. Choose all, changed or none."

if [ "$tidy" = changed ]; then
  base=$(tools/lint_base.py ${since:+"$since"}) || exit 2
  if [ -z "$base" ]; then
    echo "  skipped clang-tidy: this clone has no commit before HEAD. Give --tidy all, or clone without --depth."
    tidy=none
  fi
fi

run "layers and form" check_layers
run "rooms" check_rooms
run "links" check_links
run "golden labels" check_golden_labels
run "function lengths" check_function_lengths
run "readers of flags" check_field_readers
run "build times" check_build_times
run "base of changes" check_lint_base
run "format" check_format
run "scripts" check_scripts
if [ "$tidy" != none ]; then
  prepare_build_dir
  run "tests compile" check_tests_compile
  run "clang-tidy" check_tidy
fi
[ "$failures" = 0 ]
