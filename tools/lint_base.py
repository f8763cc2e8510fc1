#!/usr/bin/env python3
"""Prints the commit with which scripts/lint.sh compares the tree to find what has changed.

    tools/lint_base.py [COMMIT]

COMMIT, if it is given; else the commit where HEAD left its upstream, or the default branch of origin, or main; else, as in a
clone of what is upstream already, the commit before HEAD. Prints nothing where there is none of these, as in a clone with
--depth 1. Exit status 2 if COMMIT does not exist.
"""

import subprocess
import sys

UPSTREAMS = ("@{upstream}", "origin/HEAD", "origin/main", "main")


def git(*arguments):
    """What git prints, or an empty text if it fails."""
    run = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else ""


def commit(name):
    return git("rev-parse", "--verify", "--quiet", name + "^{commit}")


def base_of_head():
    for upstream in UPSTREAMS:
        base = git("merge-base", "HEAD", upstream)
        if base and base != commit("HEAD"):
            return base
    return commit("HEAD~1")


def main():
    if len(sys.argv) < 2:
        print(base_of_head())
        return 0
    base = commit(sys.argv[1])
    if not base:
        print(f"lint_base: there is no commit {sys.argv[1]}", file=sys.stderr)
        return 2
    print(base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
