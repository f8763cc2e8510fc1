#!/usr/bin/env bash
# Compares megatron tokenize with the packages tokenizers, tiktoken and sentencepiece, on tokenizers that it trains:
#   MEGATRON_REFERENCE_PYTHON=/path/to/python compare_tokenizers.sh MEGATRON [flags of compare_tokenizers.py]
# COMPARE_TOKENIZERS_FIXTURES: a folder that keeps the trained tokenizers for the next call.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
megatron=${1:?usage: compare_tokenizers.sh MEGATRON [flags]}
shift
python=${MEGATRON_REFERENCE_PYTHON:-}
[ -n "$python" ] || { echo "Set MEGATRON_REFERENCE_PYTHON to a Python that has the three packages."; exit 77; }
fixtures=${COMPARE_TOKENIZERS_FIXTURES:-}
if [ -z "$fixtures" ]; then
  fixtures=$(mktemp -d)
  trap 'rm -rf "$fixtures"' EXIT
fi
[ -e "$fixtures/t5.model" ] || "$python" "$here/make_tokenizers.py" "$fixtures" --vocab-size 8000 --megabytes 4
"$python" "$here/compare_tokenizers.py" "$megatron" "$fixtures" "$@"
