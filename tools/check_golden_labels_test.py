#!/usr/bin/env python3
"""check_golden_labels.py finds tests that read tests/golden without the label, and passes others."""

import pathlib
import tempfile
import unittest

import check_golden_labels


class CheckGoldenLabelsTest(unittest.TestCase):
    def mistakes(self, lists, source):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "tests/area").mkdir(parents=True)
            (root / "tests/area/CMakeLists.txt").write_text(lists)
            (root / "tests/area/a_test.cpp").write_text(source)
            return list(check_golden_labels.mistakes(root))

    def test_a_reader_without_the_label_is_found_also_in_a_loop(self):
        for lists in ("megatron_test(one SOURCES other.cpp a_test.cpp DEPS golden LABELS unit)",
                      "foreach(name b a)\n  megatron_test(${name}_test SOURCES ${name}_test.cpp DEPS x LABELS unit)\nendforeach()"):
            self.assertEqual(len(self.mistakes(lists, 'f(golden_path("x"));')), 1, lists)

    def test_a_reader_with_the_label_passes(self):
        self.assertEqual(self.mistakes("megatron_test(one SOURCES a_test.cpp LABELS unit golden)", "golden_json(x);"), [])

    def test_comments_texts_and_included_names_read_nothing(self):
        source = '#include "tests/datasets/golden.h"\n// golden\nf("tests/golden");\n'
        self.assertEqual(self.mistakes("megatron_test(one SOURCES a_test.cpp LABELS unit)", source), [])


if __name__ == "__main__":
    unittest.main()
