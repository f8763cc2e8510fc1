#!/usr/bin/env python3
"""Checks who includes whom, and the rules of form that a program can check.

    tools/check_layers.py [ROOT]              prints each mistake as path:line: text; exit status 1 if there is one
    tools/check_layers.py --compile [ROOT]    also compiles each header of megatron/ by itself

A folder of megatron/ may include the folders below it in LAYERS, directly or not, and itself.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

# Each folder with the folders right below it.
LAYERS = {
    "base": [],
    "core": ["base"],
    "kernels": ["core"],
    "comm": ["core"],
    "autograd": ["kernels"],
    "ops": ["autograd"],
    "tensor_parallel": ["ops", "comm"],
    "context_parallel": ["tensor_parallel"],
    "transformer": ["context_parallel"],
    "pipeline_parallel": ["autograd", "comm"],
    "models": ["transformer", "pipeline_parallel", "datasets"],
    "distributed": ["autograd", "comm"],
    "optimizer": ["distributed"],
    "dist_checkpointing": ["autograd", "comm"],
    "tokenizers": ["base"],
    "datasets": ["tokenizers"],
    "inference": ["models", "tokenizers"],
    "telemetry": ["base"],
}
LAYERS["training"] = list(LAYERS)
LAYERS["bench"] = ["training"]

MAX_LINES = 400
CODE_FOLDERS = ["megatron", "commands", "examples", "tests", "benchmarks", "tools", "scripts"]
CODE_SUFFIXES = {".cpp", ".h", ".cu", ".cuh", ".py", ".sh"}
HEADER_SUFFIXES = {".h", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Device code may ask which architecture it is compiled for: only there the two compilations of a file differ.
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef)\b(?!.*__CUDA_ARCH)")
DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)")
USING_NAMESPACE = re.compile(r"^\s*using\s+namespace\b")
GPU_HEADER = re.compile(r"^(cuda|cublas|cudnn|cub/|cutlass|nccl|nvtx)")
GPU_FOLDERS = {"cuda", "nccl"}
# A kernel that has no use for its stream is host code that touches device memory: copy.h is the way.
HOST_KERNEL = re.compile(r"\blaunch\(.*\[[^\]]*\]\((const )?auto&\)")
DEPENDENCY = re.compile(r"\bmegatron::(\w+)")


def reachable(layer):
    """The folders that `layer` may include, itself among them."""
    seen = set()
    open_layers = [layer]
    while open_layers:
        current = open_layers.pop()
        if current not in seen:
            seen.add(current)
            open_layers += LAYERS[current]
    return seen


def layer_mistake(path, target):
    """Why the file `path` must not include the project file `target`, both relative to the root, or None."""
    source_top = path.parts[0]
    target_top = target.parts[0]
    if source_top == "tests" or target_top == source_top != "megatron":
        return None
    if (source_top, target_top) == ("examples", "commands"):
        return None
    if target_top != "megatron":
        return f"only tests may include {target_top}/"
    if source_top != "megatron" or len(target.parts) < 3:
        return None
    layer = path.parts[1]
    below = target.parts[1]
    if layer not in LAYERS:
        return f"folder {layer} is not in the table LAYERS of tools/check_layers.py"
    if below not in reachable(layer):
        return f"{layer} must not include {below}; it may include {', '.join(sorted(reachable(layer) - {layer})) or 'nothing'}"
    return None


def include_mistakes(root, path, number, bracket, name):
    first = name.split("/")[0]
    if bracket == "<":
        if first in CODE_FOLDERS:
            yield number, f'include {name} with "", as a file of this project'
        if GPU_HEADER.match(name) and path.parts[0] == "megatron" and not GPU_FOLDERS & set(path.parts):
            yield number, f"<{name}> belongs into a folder named cuda or nccl"
        return
    if first not in CODE_FOLDERS:
        yield number, f'"{name}" must be a path from the root of the repository, such as megatron/base/error.h'
        return
    if not (root / name).exists():
        yield number, f'"{name}" does not exist'
    mistake = layer_mistake(path, pathlib.PurePosixPath(name))
    if mistake:
        yield number, mistake


def header_mistakes(path, lines):
    if not any(line.strip() == "#pragma once" for line in lines):
        yield 1, "a header needs #pragma once"
    for number, line in enumerate(lines, 1):
        if USING_NAMESPACE.match(line):
            yield number, "no using namespace in a header"
        if path.parts[0] != "megatron":
            continue
        if CONDITION.match(line):
            yield number, "no conditional compilation in a public header; branch in the .cpp or in CMake"
        if DEFINE.match(line):
            yield number, "no macros in a public header; use a constant or a function"


def code_mistakes(root, path):
    lines = (root / path).read_text(encoding="utf-8").splitlines()
    if len(lines) > MAX_LINES:
        yield 1, f"{len(lines)} lines, more than {MAX_LINES}: split it by concept"
    if path.suffix not in {".cpp", ".h", ".cu", ".cuh"}:
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            yield from include_mistakes(root, path, number, *match.groups())
        if path.parts[0] == "megatron" and HOST_KERNEL.search(line):
            yield number, "a kernel without use for its stream: the host reaches device memory by megatron/core/copy.h"
    if path.suffix in HEADER_SUFFIXES:
        yield from header_mistakes(path, lines)


def cmake_mistakes(root, path):
    """A library must not link a folder that it must not include."""
    layer = path.parts[1]
    allowed = reachable(layer) if layer in LAYERS else set()
    for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
        for name in DEPENDENCY.findall(line.split("#")[0]):
            if name in LAYERS and name not in allowed:
                yield number, f"{layer} must not link {name}"


def compile_mistake(root, path):
    """The first error of the compiler for a file that includes only this header."""
    command = ["c++", "-std=c++20", "-fsyntax-only", "-DPCRE2_CODE_UNIT_WIDTH=8", "-DMEGATRON_CUDA=0", "-I", str(root), "-x", "c++", "-"]
    run = subprocess.run(command, input=f'#include "{path}"\n', capture_output=True, text=True)
    if run.returncode == 0:
        return None
    return next((line for line in run.stderr.splitlines() if "error" in line), run.stderr)


def files_below(root, folders, suffixes):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in suffixes:
                yield pathlib.PurePosixPath(path.relative_to(root))


def all_mistakes(root, compile_headers):
    for path in files_below(root, CODE_FOLDERS, CODE_SUFFIXES):
        for number, text in code_mistakes(root, path):
            yield f"{path}:{number}: {text}"
    for path in sorted((root / "megatron").glob("*/CMakeLists.txt")):
        path = pathlib.PurePosixPath(path.relative_to(root))
        for number, text in cmake_mistakes(root, path):
            yield f"{path}:{number}: {text}"
    if not compile_headers:
        return
    headers = [p for p in files_below(root, ["megatron"], {".h"}) if not GPU_FOLDERS & set(p.parts)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, mistake in zip(headers, pool.map(lambda p: compile_mistake(root, p), headers)):
            if mistake:
                yield f"{path}:1: does not compile by itself: {mistake}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--compile", action="store_true", help="also compile each header of megatron/ by itself")
    arguments = parser.parse_args()
    mistakes = list(all_mistakes(arguments.root, arguments.compile))
    print("\n".join(mistakes) if mistakes else "check_layers: no mistakes")
    sys.exit(1 if mistakes else 0)


if __name__ == "__main__":
    main()
