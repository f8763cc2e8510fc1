#!/usr/bin/env python3
"""Checks that the tables of docs/architecture.md have a row for each folder of megatron/ and commands/, and no other.

    tools/check_rooms.py [ROOT]     prints each mistake; exit status 1 if there is one
"""

import pathlib
import re
import sys

PAGE = "docs/architecture.md"
CODE = {".cpp", ".h", ".cu", ".cuh"}
FOLDER = re.compile(r"`((?:megatron|commands)(?:/\w+)*)`")


def folders_of(root):
    """Folders that hold code themselves."""
    tops = [root / "megatron", root / "commands"]
    files = (path for top in tops for path in top.rglob("*") if path.suffix in CODE)
    return {path.parent.relative_to(root).as_posix() for path in files}


def named_in(text):
    """Folders that the rows of the tables name, in any column."""
    return {name for line in text.splitlines() if line.startswith("| `") for name in FOLDER.findall(line)}


def mistakes(root):
    folders, named = folders_of(root), named_in((root / PAGE).read_text(encoding="utf-8"))
    for folder in sorted(folders - named):
        yield f"{PAGE}: no table has {folder}"
    for folder in sorted(named - folders):
        yield f"{PAGE}: {folder} has no code"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(mistakes(root))
    print("\n".join(found) or "check_rooms: no mistakes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
