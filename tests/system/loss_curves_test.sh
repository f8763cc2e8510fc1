#!/usr/bin/env bash
# The loss curves of 1, 2 and 4 ranks are one curve, on one picture, and runs that are over are not run again.
#
#   tests/system/loss_curves_test.sh MEGATRON
set -euo pipefail
megatron=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "loss_curves_test: $*" >&2
  exit 1
}

draw() {
  "$(dirname "$0")/../../benchmarks/loss_curves.sh" --megatron "$megatron" --output "$work/curves" --device cpu --steps 15 --short
}

first=$(draw) || fail "$first"
grep -q '^4 ranks: 15 values' <<<"$first" || fail "$first"
grep -q '</svg>' "$work/curves/losses.svg" || fail "there is no picture"
# Sums of 16 sequences in fp32 in another order: 15 steps keep the loss, about 5, to 1e-4.
awk '/from 1 ranks$/ && $(NF - 3) > 1e-4 {exit 1}' <<<"$first" || fail "the curves part: $first"
again=$(draw) || fail "$again"
! grep -qx '4 ranks' <<<"$again" || fail "a run that was over ran again"
echo "$first"
