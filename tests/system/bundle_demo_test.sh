#!/usr/bin/env bash
# In a bundle for machines without network and compilers scripts/demo.sh trains and writes, and calls neither.
#
#   tests/benchmarks/bundle_demo_test.sh MEGATRON
set -euo pipefail
megatron=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "bundle_demo_test: $*" >&2
  exit 1
}

mkdir "$work"/{bin,scripts,refused}
ln -s "$megatron" "$work/bin/megatron"
ln -s "$source/data" "$work/data"
cp "$source/scripts/demo.sh" "$work/scripts/"
touch "$work/BUILT_IN"
"$megatron" --version >"$work/VERSION"
for tool in cmake ninja nvcc apt-get sudo curl git; do
  printf '#!/bin/sh\necho "%s was called" >&2\nexit 1\n' $tool >"$work/refused/$tool"
done
chmod +x "$work/refused"/*
PATH=$work/refused:$PATH "$work/scripts/demo.sh" --short --steps 6 --cpu >"$work/log" 2>&1 || { tail "$work/log"; fail "the demo failed"; }
grep -q "$(cat "$work/VERSION")" "$work/log" || fail "it does not say what it runs"
for file in loss.svg metrics.jsonl checkpoint/latest_checkpointed_iteration.txt; do
  [ -s "$work/demo/run/$file" ] || fail "there is no $file"
done
grep -q "ROMEO:" "$work/log" || fail "it writes no text"
