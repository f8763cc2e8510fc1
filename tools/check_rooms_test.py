#!/usr/bin/env python3
"""check_rooms.py finds folders that the page lacks, and those that the tree lacks."""

import pathlib
import tempfile
import unittest

import check_rooms


class CheckRoomsTest(unittest.TestCase):
    def mistakes(self, files, page):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**{name: "" for name in files}, "docs/architecture.md": page}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(check_rooms.mistakes(root))

    FILES = ["megatron/base/error.h", "megatron/kernels/cpu/add.cpp", "commands/main.cpp", "megatron/CMakeLists.txt"]
    PAGE = "| `megatron/base`, `commands` | errors |\n| `megatron/kernels/cpu` | kernels |\n"

    def test_each_folder_with_code_has_a_row(self):
        self.assertEqual(self.mistakes(self.FILES, self.PAGE), [])
        self.assertEqual(self.mistakes(self.FILES + ["megatron/core/cuda/x.cu"], self.PAGE),
                         ["docs/architecture.md: no table has megatron/core/cuda"])

    def test_other_text_does_not_count(self):
        self.assertEqual(self.mistakes(["megatron/base/error.h"], "see `megatron/base`\n"),
                         ["docs/architecture.md: no table has megatron/base"])

    def test_a_row_needs_its_folder(self):
        self.assertEqual(self.mistakes(self.FILES[1:], self.PAGE), ["docs/architecture.md: megatron/base has no code"])


if __name__ == "__main__":
    unittest.main()
