#!/usr/bin/env bash
# Installs the packages that megatron needs, on Debian 12 or newer and Ubuntu 24.04 or newer.
# Nothing is downloaded, and no rights are asked for, when all of them are there.
#
#   scripts/install_dependencies.sh [--dry-run] [GROUP...]
#
# Groups: build (compile and run), tests (also the unit tests), mpi (ranks as processes, and their tests), lint (also the
# checks of .ci/run), cuda (headers of cudnn-frontend, into .cache/; the CUDA toolkit itself is NVIDIA's to install).
# Default: build tests.
set -euo pipefail

# GROUP PACKAGE PROBE REASON; a PROBE of - asks dpkg for the package, any other is a command that makes it needless.
packages() {
  cat <<'TABLE'
build g++                 g++             the compiler, C++20 (12 or newer)
build cmake               cmake           describes the build (3.25 or newer)
build ninja-build         ninja           runs the build
build ccache              ccache          makes the second build fast
build mold                mold            links a program in a third of the time
build pkg-config          pkg-config      finds PCRE2
build libfmt-dev          -               formats text
build nlohmann-json3-dev  -               writes JSON and reads configurations
build libsimdjson-dev     -               reads large JSON files and JSON lines
build libdnnl-dev         -               oneDNN: matrix products on the CPU
build ocl-icd-opencl-dev  -               named by oneDNN's CMake package, which otherwise is not found
build libpcre2-dev        -               regular expressions of tokenizers
build libutf8proc-dev     -               normal forms and classes of Unicode characters for tokenizers
build libsentencepiece-dev -              SentencePiece models, also Llama 2's
build zlib1g-dev          -               reads .gz input
build libzstd-dev         -               reads .zst input
tests libgtest-dev        -               unit tests
tests libgmock-dev        -               unit tests
mpi   openmpi-bin         mpirun          starts ranks as processes, also over several hosts
lint  git                 git             lists the files to check
lint  python3             python3         runs tools/check_layers.py and check_links.py
lint  clang-format-14     clang-format-14 checks the format of the code
lint  clang-tidy-14       clang-tidy-14   finds mistakes in the code
lint  shellcheck          shellcheck      finds mistakes in scripts
cuda  python3             python3         unpacks cudnn-frontend
cuda  python3-pip         pip3            fetches cudnn-frontend
TABLE
}

# cudnn-frontend is in no Debian release; the headers of its Python package are the same for all Pythons.
frontend_version=1.23.0
frontend_hash=sha256:7bdae232a3071501012611fab14aae34dd16983205e56d3c1641317910fdd385
frontend_folder=.cache/cudnn-frontend

install_cudnn_frontend() {
  local folder
  folder=$(cd "$(dirname "$0")/.." && pwd)/$frontend_folder
  if [ "$(cat "$folder/version" 2>/dev/null)" = $frontend_version ]; then return; fi
  echo "install_dependencies: fetching cudnn-frontend $frontend_version into $frontend_folder"
  rm -rf "$folder"
  mkdir -p "$folder"
  echo "nvidia-cudnn-frontend==$frontend_version --hash=$frontend_hash" >"$folder/requirements.txt"
  pip3 download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --platform manylinux_2_28_x86_64 --python-version 3.11 --dest "$folder" -r "$folder/requirements.txt" ||
    fail "cudnn-frontend could not be fetched. Attention on CUDA is built without cuDNN, or set CUDNN_FRONTEND_INCLUDE_DIR"
  python3 -m zipfile -e "$folder"/*.whl "$folder"
  rm -rf "$folder"/*.whl "$folder/cudnn"
  echo $frontend_version >"$folder/version"
}

fail() {
  echo "install_dependencies: $*" >&2
  exit 1
}

is_installed() {
  local package=$1 probe=$2
  if [ "$probe" != - ] && command -v "$probe" >/dev/null; then return 0; fi
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ]
}

# Prints the missing packages of the given groups to standard output, and why they are needed to standard error.
missing_packages() {
  local group package probe reason
  while read -r group package probe reason; do
    [[ " $* " == *" $group "* ]] || continue
    is_installed "$package" "$probe" && continue
    printf '  %-20s %s\n' "$package" "$reason" >&2
    echo "$package"
  done < <(packages)
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install() {
  local options=(-y -qq --no-install-recommends -o DPkg::Lock::Timeout=300)
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    fail "root rights are needed and sudo is not there. Ask an administrator to run: apt-get install $*"
  fi
  as_root apt-get update -qq || echo "install_dependencies: the package lists could not be renewed; trying those at hand" >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" "$@" >/dev/null ||
    fail "apt-get could not install: $*
Is the machine online? On Ubuntu these packages are in 'universe': sudo add-apt-repository universe"
}

main() {
  local dry_run=false groups=() argument
  for argument in "$@"; do
    case $argument in
      --dry-run) dry_run=true ;;
      build | tests | mpi | lint | cuda) groups+=("$argument") ;;
      -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
      *) fail "unknown argument '$argument'. Known: --dry-run build tests mpi lint cuda" ;;
    esac
  done
  [ ${#groups[@]} -gt 0 ] || groups=(build tests)
  command -v dpkg-query >/dev/null || fail "this system has no dpkg. Install the like of these with its own tools:
$(packages | awk '{print "  " $2}')"

  local missing
  mapfile -t missing < <(missing_packages "${groups[@]}")
  if [ ${#missing[@]} = 0 ]; then
    echo "install_dependencies: all packages for ${groups[*]} are installed"
  elif $dry_run; then
    echo "install_dependencies: missing: ${missing[*]}"
  else
    echo "install_dependencies: installing the packages above"
    install "${missing[@]}"
  fi
  if ! $dry_run && [[ " ${groups[*]} " == *" cuda "* ]]; then install_cudnn_frontend; fi
}

main "$@"
