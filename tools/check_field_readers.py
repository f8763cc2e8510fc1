#!/usr/bin/env python3
"""Checks that the program reads the member behind each flag, for a flag that nothing reads would be silently ignored.

    tools/check_field_readers.py [ROOT]     prints each mistake; exit status 1 if there is one

The files megatron/training/config/*_fields.cpp bind flags to members: table.add("log_params_norm", logging.log_params_norm, ...).
Some other file of megatron/ or commands/ must read such a member, as in `config.logging.log_params_norm`, or a function of the
struct that declares it. Members with the same name are not told apart. Flags that are marked without_effect() or
not_supported_yet() need no reader.
"""

import pathlib
import re
import sys

FIELDS = "megatron/training/config/*_fields.cpp"
ADDED = re.compile(r'\badd\w*\(\s*(?:table,\s*)?"(\w+)",\s*([\w.]+)\s*,')
IDLE = re.compile(r"\.(without_effect|not_supported_yet)\(")
MEMBER_READ = re.compile(r"(?:\.|->)(\w+)\b(?!\s*=[^=])")
COMMENT = re.compile(r"//[^\n]*")
# Flags without a reader, and why they are not ignored.
EXCEPTIONS = {
    "align_param_gather": "its only other value is rejected where it could have an effect",
    "dist_ckpt_optim_fully_reshardable": "asks for the default, and is rejected beside another --dist-ckpt-optim-form",
}


def bindings(text):
    """(name of the flag, member) of each field in a *_fields.cpp, but those marked as idle."""
    for match in ADDED.finditer(text):
        statement = text[match.end() : text.find(";\n", match.end())]
        if not IDLE.search(statement):
            yield match.group(1), match.group(2).split(".")[-1]


def read_members(sources):
    """Names that some source reads of an object: x.member, or p->member."""
    return {name for text in sources.values() for name in MEMBER_READ.findall(text)}


def is_read_by_its_struct(member, sources):
    """True if a function of the struct that declares the member reads it, in the header or in the source beside it."""
    declaration = re.compile(rf"[\w>] {member}(?: = [^;]*|{{[^;]*}})?;")
    name = re.compile(rf"\b{member}\b")
    for path, text in sources.items():
        if path.suffix == ".h" and declaration.search(text):
            if len(name.findall(text)) > 1 or name.search(sources.get(path.with_suffix(".cpp"), "")):
                return True
    return False


def mistakes(root, exceptions):
    field_files = sorted(root.glob(FIELDS))
    sources = {}
    for folder in ("megatron", "commands"):
        for path in (root / folder).rglob("*"):
            if path.suffix in {".cpp", ".h", ".cu", ".cuh"} and path not in field_files:
                sources[path] = COMMENT.sub("", path.read_text(encoding="utf-8"))
    members, unread = read_members(sources), set()
    for path in field_files:
        for name, member in bindings(path.read_text(encoding="utf-8")):
            if member not in members and not is_read_by_its_struct(member, sources):
                unread.add(name)
                if name not in exceptions:
                    yield f"{path.relative_to(root)}: nothing reads the member of the flag {name}: it would be ignored"
    for name in sorted(exceptions.keys() - unread):
        yield f"tools/check_field_readers.py: {name} has a reader now: remove it from EXCEPTIONS"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(mistakes(root, EXCEPTIONS))
    print("\n".join(found) or "check_field_readers: no mistakes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
