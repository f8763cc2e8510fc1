#!/usr/bin/env python3
"""Prints where the time of a build and of its tests goes, as a table of Markdown by folder.

    tools/build_times.py BUILD_DIR      after a whole build in an empty BUILD_DIR and a run of ctest there

Compiling and linking: elapsed seconds in BUILD_DIR/.ninja_log, summed over objects, libraries and programs. They are CPU seconds
where the machine had as many idle cores as ninja had jobs, and nothing came from ccache (CCACHE_DISABLE=1). Running: the mean of
ctest's runs of each test.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

OBJECT = re.compile(r"(?P<folder>.*?)/?CMakeFiles/(?P<target>[^/]+)\.dir/")


class Times:
    def __init__(self):
        self.objects = self.tests = 0
        self.compiling = self.linking = self.running = 0.0

    def seconds(self):
        return self.compiling + self.linking + self.running


def room(path):
    """The folder that a row stands for: tests/training for tests/training/config."""
    parts = pathlib.PurePosixPath(path).parts
    return "/".join(parts[: 2 if parts and parts[0] in ("megatron", "tests") else 1]) or "."


def read_build(log_lines):
    """Times by folder, and the folder of each target."""
    seconds = {}  # the last time of an output that was made several times
    for line in log_lines:
        if line.startswith("#"):
            continue
        start, end, _, output, _ = line.rstrip("\n").split("\t")
        seconds[output] = (int(end) - int(start)) / 1000
    times, folders = collections.defaultdict(Times), {}
    for output in seconds:
        if (match := OBJECT.match(output)) and output.endswith(".o"):
            folders[match["target"]] = room(match["folder"])
    for output, duration in seconds.items():
        if (match := OBJECT.match(output)) and output.endswith(".o"):
            row = times[room(match["folder"])]
            row.objects += 1
            row.compiling += duration
        elif "CMakeFiles/" not in output and not output.endswith((".cmake", ".ninja", ".stamp")):
            path = pathlib.PurePosixPath(output)
            times[folders.get(path.name, room(path.parent))].linking += duration
    return times, folders


def add_tests(times, folders, tests, cost_lines):
    """@param tests  of `ctest --show-only=json-v1`"""
    costs = {}
    for line in cost_lines:
        if line.startswith("---"):
            break  # names of failed tests follow
        name, _, cost = line.rsplit(" ", 2)
        costs[name] = float(cost)
    for test in tests:
        command = test.get("command")
        if not command:
            continue
        row = times[folders.get(pathlib.PurePosixPath(command[0]).name, "scripts")]
        row.tests += 1
        row.running += costs.get(test["name"], 0.0)


def added(rows):
    total = Times()
    for row in rows:
        for name, value in vars(row).items():
            setattr(total, name, getattr(total, name) + value)
    return total


def table(times, least_share=0.01):
    """The folders that take at least this share of all seconds, the others together, and all."""
    yield "| folder | objects | compile, s | link, s | tests | run, s |"
    yield "|---|---|---|---|---|---|"
    total, others = added(times.values()), []
    for folder, row in sorted(times.items(), key=lambda item: -item[1].seconds()):
        if row.seconds() < least_share * total.seconds():
            others.append(row)
        else:
            yield row_of(folder, row)
    if others:
        yield row_of(f"{len(others)} others", added(others))
    yield row_of("all", total)


def row_of(name, row):
    return f"| {name} | {row.objects} | {row.compiling:.0f} | {row.linking:.0f} | {row.tests} | {row.running:.0f} |"


def main(arguments):
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 2
    build = pathlib.Path(arguments[0])
    times, folders = read_build((build / ".ninja_log").read_text().splitlines())
    costs = build / "Testing/Temporary/CTestCostData.txt"
    if costs.exists():
        shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True, capture_output=True)
        add_tests(times, folders, json.loads(shown.stdout)["tests"], costs.read_text().splitlines())
    print("\n".join(table(times)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
