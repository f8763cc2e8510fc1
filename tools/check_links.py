#!/usr/bin/env python3
"""Checks that relative links in Markdown files lead to a file, and to a heading where they name one.

    tools/check_links.py [ROOT]
"""

import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^()\s]+)\)")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def anchors(text):
    """What GitHub calls the headings of a file."""
    slugs = []
    for heading in HEADING.findall(BLOCK.sub("", text)):
        words = re.sub(r"\]\([^()]*\)", "", heading).lower()
        slugs.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    again = [slugs[:i].count(slug) for i, slug in enumerate(slugs)]
    return {f"{slug}-{n}" if n else slug for slug, n in zip(slugs, again)}


def mistakes_in(path):
    """Lines on links of a file that lead nowhere."""
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", BLOCK.sub("", path.read_text()))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        if not file.exists():
            yield f"{path}: {target} does not exist"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            yield f"{path}: {file.name} has no heading #{anchor}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    names = subprocess.run(["git", "ls-files", "-z", "--", "*.md"], cwd=root, check=True, capture_output=True, text=True)
    mistakes = [line for name in names.stdout.split("\0") if name for line in mistakes_in(root / name)]
    print("\n".join(mistakes) or "check_links: no mistakes")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
