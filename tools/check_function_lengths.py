#!/usr/bin/env python3
"""Checks that functions have at most 60 lines, except those that docs/long_functions.md lists with the reason.

    tools/check_function_lengths.py [ROOT]     prints each mistake as path:line: text; exit status 1 if there is one

It reads megatron/, commands/ and examples/, formatted by clang-format: the lines of a function go from its declaration to
the closing brace in the same column. Tests are no part of it. Names and files in the list may have wildcards.
"""

import fnmatch
import pathlib
import re
import sys

MOST_LINES = 60
FOLDERS = ("megatron", "commands", "examples")
SUFFIXES = (".cpp", ".h", ".cu", ".cuh")
LIST = "docs/long_functions.md"

NO_FUNCTION = re.compile(r"(namespace|struct|class|enum|union|extern|if|for|while|switch|else|do|try|return|case|default)\b")
NAME = re.compile(r"([~\w:]+)\s*\(")
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| (\S.*) \|$")


def declaration_before(lines, end):
    """Index of the line on which the statement begins whose last line is lines[end]."""
    begin = end
    while begin > 0:
        line = lines[begin - 1].rstrip()
        if not line or line.endswith((";", "{", "}", ":")) or line.lstrip().startswith(("//", "#")):
            break
        begin -= 1
    return begin


def name_in(statement):
    """The name of the function that the statement declares, or None."""
    if "(" not in statement or NO_FUNCTION.match(statement) or statement.startswith(("{", "}")):
        return None
    if re.search(r"=\s*(\{|R\")", statement.split("(")[0]):
        return None
    without_attributes = re.sub(r"__\w+__\s*(\([^)]*\))?", "", statement)
    name = NAME.search(without_attributes)
    return name.group(1) if name else None


def functions(text):
    """(name, line number, number of lines) of each function that is not within another one."""
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        line = lines[i].rstrip()
        if line.endswith("{") and not line.lstrip().startswith(("//", "#")):
            begin = declaration_before(lines, i)
            name = name_in(" ".join(part.strip() for part in lines[begin : i + 1]))
            if name:
                indent = len(lines[begin]) - len(lines[begin].lstrip())
                end = i + 1
                while end < len(lines) and not lines[end].startswith(" " * indent + "}"):
                    end += 1
                yield name, begin + 1, end - begin + 1
                i = end
        i += 1


def listed(root):
    """Rows (name, file) of the list."""
    path = root / LIST
    rows = [ROW.match(line) for line in path.read_text().split("\n")] if path.exists() else []
    return [row.group(1, 2) for row in rows if row]


def mistakes(root):
    rows = listed(root)
    used = set()
    for folder in FOLDERS:
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in SUFFIXES):
            name_of_file = path.relative_to(root).as_posix()
            for name, line, count in functions(path.read_text()):
                if count <= MOST_LINES:
                    continue
                found = [r for r in rows if fnmatch.fnmatchcase(name, r[0]) and fnmatch.fnmatchcase(name_of_file, r[1])]
                used.update(found)
                if not found:
                    yield (f"{name_of_file}:{line}: {name} has {count} lines, at most {MOST_LINES} are allowed. "
                           f"Divide it, or add it to {LIST} with the reason")
    for name, file in rows:
        if (name, file) not in used:
            yield f"{LIST}: {name} in {file} has at most {MOST_LINES} lines: remove the row"


def main():
    found = list(mistakes(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print("\n".join(found) if found else "check_function_lengths: no mistakes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
