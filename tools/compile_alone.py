#!/usr/bin/env python3
"""Checks that sources compile each by itself, without making object files.

usage: compile_alone.py COMPILE_COMMANDS_JSON SOURCE...
"""
import concurrent.futures
import json
import os
import subprocess
import sys


def main():
    commands = {os.path.relpath(entry["file"]): entry for entry in json.load(open(sys.argv[1]))}

    def compiles(source):
        entry = commands[source]
        result = subprocess.run(entry["command"] + " -fsyntax-only", shell=True, cwd=entry["directory"],
                                capture_output=True, text=True)
        return result.returncode == 0 or result.stderr

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [text for text in pool.map(compiles, sys.argv[2:]) if text is not True]
    print("".join(errors), end="")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
