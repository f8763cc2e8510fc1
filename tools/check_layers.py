#!/usr/bin/env python3
"""Checks who includes whom, and the rules of form that a program can check.

    tools/check_layers.py [ROOT]              prints each mistake as path:line: text; exit status 1 if there is one
    tools/check_layers.py --compile [ROOT]    also compiles each header of megatron/ by itself

A folder of megatron/ may include the folders below it in LAYERS, directly or not, and itself. No files and no folders, however
deep, may include each other in a circle; the pairs of folders in ENTANGLED still do.
"""

import argparse
import concurrent.futures
import graphlib
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

# Pairs of folders that include each other: a folder and one within it that both builds on it and is used by it. A new
# pair is a mistake, and so is one that has been taken apart.
ENTANGLED = {
    ("commands", "commands/bench"),  # `plan --memory` reads bench's configurations; program.cpp lists all commands
    ("commands", "commands/checkpoint"),
    ("commands", "commands/launch"),
    ("megatron/pipeline_parallel", "megatron/pipeline_parallel/schedules"),  # pipeline_schedule.cpp lists them
    ("megatron/tokenizers", "megatron/tokenizers/chat_template"),  # both read Unicode tables
    ("megatron/tokenizers", "megatron/tokenizers/hugging_face"),
    ("megatron/training", "megatron/training/checkpoint"),  # it stores a Trainer, and the loop has one
    ("megatron/training", "megatron/training/config"),
    ("megatron/training", "megatron/training/planning"),  # a plan is a step of a Trainer on a meta device
    ("megatron/training", "megatron/training/profile"),
    ("megatron/training", "megatron/training/startup"),
    ("megatron/training/checkpoint", "megatron/training/hugging_face"),  # --load-hf; and bridge writes checkpoints
    ("megatron/transformer", "megatron/transformer/moe"),  # experts are MLPs, and a layer may have experts
}

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


def includes_of(root, folders):
    """{file: {included file: line number}} of the project's files."""
    graph = {}
    for path in files_below(root, folders, {".cpp", ".h", ".cu", ".cuh"}):
        lines = enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1)
        found = ((number, INCLUDE.match(line)) for number, line in lines)
        graph[str(path)] = {m.group(2): number for number, m in found if m and m.group(1) == '"'}
    return graph


def circle_in(graph):
    """Nodes of a circle in {node: nodes}, the first one again at the end; an empty list if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]
    return []


def circle_mistakes(root, entangled):
    """Files, then folders, that include each other in a circle."""
    files = includes_of(root, ["megatron", "commands"])
    circle = circle_in(files)
    for here, there in zip(circle, circle[1:]):
        yield f"{here}:{files[here][there]}: includes {there} in a circle of {len(circle) - 1} files"
    if circle:
        return
    examples = {}
    for here, targets in files.items():
        for there, number in targets.items():
            pair = (os.path.dirname(here), os.path.dirname(there))
            if pair[0] != pair[1]:
                examples.setdefault(pair, f"{here}:{number}: includes {there}")
    for pair in sorted(entangled):
        if not {pair, pair[::-1]} <= examples.keys():
            yield f"tools/check_layers.py:1: {pair[0]} and {pair[1]} no longer include each other: remove them from ENTANGLED"
    graph = {}
    for pair in examples:
        if pair not in entangled and pair[::-1] not in entangled:
            graph.setdefault(pair[0], set()).add(pair[1])
    circle = circle_in(graph)
    for pair in zip(circle, circle[1:]):
        yield f"{examples[pair]} in a circle of {len(circle) - 1} folders"


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


def all_mistakes(root, compile_headers, entangled=()):
    for path in files_below(root, CODE_FOLDERS, CODE_SUFFIXES):
        for number, text in code_mistakes(root, path):
            yield f"{path}:{number}: {text}"
    for path in sorted((root / "megatron").glob("*/CMakeLists.txt")):
        path = pathlib.PurePosixPath(path.relative_to(root))
        for number, text in cmake_mistakes(root, path):
            yield f"{path}:{number}: {text}"
    yield from circle_mistakes(root, entangled)
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
    mistakes = list(all_mistakes(arguments.root, arguments.compile, ENTANGLED))
    print("\n".join(mistakes) if mistakes else "check_layers: no mistakes")
    sys.exit(1 if mistakes else 0)


if __name__ == "__main__":
    main()
