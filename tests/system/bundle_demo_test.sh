#!/usr/bin/env bash
# In a bundle of scripts/gpu_bundle.sh, for machines without network and compilers, scripts/demo.sh trains and writes, and calls
# neither.
#
#   tests/system/bundle_demo_test.sh MEGATRON
set -euo pipefail
megatron=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "bundle_demo_test: $*" >&2
  exit 1
}

"$source/scripts/gpu_bundle.sh" --build "$(dirname "$megatron")/.." --output "$work/bundle.tar.xz" --level 0 >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "there is no bundle"; }
tar xJf "$work/bundle.tar.xz" -C "$work"
bundle=$work/megatron
while read -r script; do
  [ -x "$bundle/$script" ] || fail "gpu_batch.sh runs $script, which the bundle lacks"
done < <(grep -oE '(tests/system|benchmarks)/[a-z_0-9/]+\.sh' "$bundle/benchmarks/gpu_batch.sh" | sort -u)
mkdir "$work/refused"
for tool in cmake ninja nvcc apt-get sudo curl git; do
  printf '#!/bin/sh\necho "%s was called" >&2\nexit 1\n' $tool >"$work/refused/$tool"
done
chmod +x "$work/refused"/*
PATH=$work/refused:$PATH "$bundle/scripts/demo.sh" --short --steps 6 --cpu >"$work/log" 2>&1 || { tail "$work/log"; fail "the demo failed"; }
grep -q "$(cat "$bundle/VERSION")" "$work/log" || fail "it does not say what it runs"
for file in loss.svg metrics.jsonl checkpoint/latest_checkpointed_iteration.txt; do
  [ -s "$bundle/demo/run/$file" ] || fail "there is no $file"
done
grep -q "ROMEO:" "$work/log" || fail "it writes no text"
