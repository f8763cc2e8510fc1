#!/usr/bin/env bash
# Compares megatron bridge with transformers on random models of all families:
#   MEGATRON_REFERENCE_PYTHON=/path/to/python compare_bridge.sh MEGATRON [flags of compare_bridge.py]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
megatron=${1:?usage: compare_bridge.sh MEGATRON [flags]}
shift
python=${MEGATRON_REFERENCE_PYTHON:-}
[ -n "$python" ] || { echo "Set MEGATRON_REFERENCE_PYTHON to a Python that has torch, transformers and safetensors."; exit 77; }
exec "$python" "$here/compare_bridge.py" "$megatron" "$@"
