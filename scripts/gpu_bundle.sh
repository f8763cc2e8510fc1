#!/usr/bin/env bash
# Packs what a GPU machine without network and compilers needs to run the benchmarks: the program, the libraries that it loads
# (not those of the C library, of CUDA and of the driver), the scripts of benchmarks/ and the data. At most 40 MiB.
#
#   scripts/gpu_bundle.sh [--build DIR] [--output FILE]
#
# --build   build directory of a build with -DMEGATRON_CUDA=ON; default build-cuda.
# --output  default build-cuda/megatron_gpu_bundle.tar.gz, which git ignores.
#
# There: tar xzf megatron_gpu_bundle.tar.gz && cd megatron && benchmarks/gpu_table/gpt2.sh --megatron bin/megatron
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "gpu_bundle: $*" >&2
  exit 2
}

build=build-cuda output=""
while [ $# -gt 0 ]; do
  case $1 in
    --build) [ $# -ge 2 ] || fail "--build needs a value"; build=$2; shift ;;
    --output) [ $# -ge 2 ] || fail "--output needs a value"; output=$2; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) fail "unknown argument '$1'. Known: --build --output" ;;
  esac
  shift
done
[ -n "$output" ] || output=$build/megatron_gpu_bundle.tar.gz
[ -x "$build/bin/megatron" ] || fail "$build/bin/megatron is missing: build it with -DMEGATRON_CUDA=ON"
readonly most_bytes=$((40 << 20))

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/megatron
mkdir -p "$bundle"/{bin,lib,benchmarks/results}
strip -o "$bundle/bin/megatron.bin" "$build/bin/megatron"
# What every machine has, or what must fit its driver, is left out. libstdc++ and the C library belong together with the
# machine's own loader.
ldd "$build/bin/megatron" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
  grep -Ev '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*|libcuda|libcudart|libcublas[^/]*|libcudnn[^/]*|libnccl|libnvidia[^/]*)\.so' |
  while read -r library; do cp -L "$library" "$bundle/lib/"; done
cat >"$bundle/bin/megatron" <<'START'
#!/usr/bin/env bash
# Starts the program with the libraries of this bundle.
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/megatron.bin" "$@"
START
chmod +x "$bundle/bin/megatron"
cp -r benchmarks/gpu_table benchmarks/gpu_step.sh benchmarks/kernel_table.py "$bundle/benchmarks/"
cp -r data "$bundle/"
"$bundle/bin/megatron" --version >"$bundle/VERSION"
tar -C "$work" -czf "$output" megatron
bytes=$(stat -c %s "$output")
[ "$bytes" -le "$most_bytes" ] || fail "$output has $((bytes >> 20)) MiB, more than $((most_bytes >> 20))"
echo "$output: $(cat "$bundle/VERSION"), $((bytes >> 10)) KiB"
