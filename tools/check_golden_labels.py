#!/usr/bin/env python3
"""Checks that `ctest -L golden` runs every test that reads tests/golden.

    tools/check_golden_labels.py [ROOT]     prints each mistake as path: text; exit status 1 if there is one

A test reads golden files if one of its own sources names something golden (golden_path, golden_json, GoldenTensors,
kGoldenData, read_golden): comments, texts and included names do not count. It is then made by a megatron_test with the
label golden.
"""

import pathlib
import re
import sys

COMMENT_OR_TEXT = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|#\s*include[^\n]*')
LOOP = re.compile(r"foreach\((\w+) ([^)]*)\)(.*?)endforeach\(\)", re.DOTALL)
TEST = re.compile(r"megatron_test\((\w+)([^()]*)\)")


def expanded(text):
    """Loops over lists of words, written out."""

    def repeated(match):
        name, words, body = match.groups()
        return "".join(body.replace("${" + name + "}", word) for word in words.split())

    return LOOP.sub(repeated, text)


def values_of(keyword, arguments):
    """What follows a keyword such as SOURCES, up to the next one."""
    found = re.search(rf"\b{keyword}\b(.*?)(?:\b(?:SOURCES|DEPS|LABELS)\b|$)", arguments, re.DOTALL)
    return found.group(1).split() if found else []


def names_golden(path):
    return path.exists() and re.search("golden", COMMENT_OR_TEXT.sub("", path.read_text()), re.IGNORECASE)


def mistakes(root):
    for lists in sorted(root.glob("tests/**/CMakeLists.txt")):
        text = re.sub(r"#[^\n]*", "", lists.read_text())
        for name, arguments in TEST.findall(expanded(text)):
            if "golden" in values_of("LABELS", arguments):
                continue
            for source in values_of("SOURCES", arguments):
                if names_golden(lists.parent / source):
                    yield f"{lists.relative_to(root)}: {name} reads tests/golden by {source}, but has no label golden"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = list(mistakes(root))
    print("\n".join(found) if found else "golden labels: every test that reads tests/golden has one")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
