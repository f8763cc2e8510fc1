#!/usr/bin/env python3
"""check_field_readers.py finds flags whose value nothing uses."""

import pathlib
import tempfile
import unittest

import check_field_readers

FOLDER = "megatron/training/config"


class CheckFieldReadersTest(unittest.TestCase):
    def mistakes(self, fields, files, exceptions=()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {f"{FOLDER}/x_fields.cpp": fields, **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(check_field_readers.mistakes(root, dict.fromkeys(exceptions, "a reason")))

    FIELD = 'table.add("log_norm", logging.norm, "log it").at_least(1);\n'
    MISTAKE = [f"{FOLDER}/x_fields.cpp: nothing reads the member of the flag log_norm: it would be ignored"]

    def test_a_member_that_is_read_elsewhere_passes(self):
        self.assertEqual(self.mistakes(self.FIELD, {"megatron/x.cpp": "if (config.logging.norm) print();\n"}), [])

    def test_one_that_is_only_written_or_named_in_a_comment_does_not(self):
        self.assertEqual(self.mistakes(self.FIELD, {"commands/x.cpp": "logging.norm = 1;  // logging.norm\n"}), self.MISTAKE)

    def test_other_files_of_fields_are_no_readers(self):
        self.assertEqual(self.mistakes(self.FIELD, {f"{FOLDER}/y_fields.cpp": "require(logging.norm);\n"}), self.MISTAKE)

    def test_functions_of_the_struct_are_readers(self):
        plain = "struct Logging {\n  int norm = 1;\n};\n"
        self.assertEqual(self.mistakes(self.FIELD, {"megatron/logging.h": plain}), self.MISTAKE)
        inline = "struct Logging {\n  int norm = 1;\n  bool logs() const { return norm > 0; }\n};\n"
        self.assertEqual(self.mistakes(self.FIELD, {"megatron/logging.h": inline}), [])
        beside = {"megatron/logging.h": plain, "megatron/logging.cpp": "bool Logging::logs() const { return norm > 0; }\n"}
        self.assertEqual(self.mistakes(self.FIELD, beside), [])

    def test_flags_that_say_why_they_are_idle_need_none(self):
        for mark in ("without_effect", "not_supported_yet"):
            field = f'add("log_norm", logging.norm, "")\n    .named({{"--x"}})\n    .{mark}("a reason");\n'
            self.assertEqual(self.mistakes(field, {}), [])

    def test_exceptions_end_with_their_reason(self):
        self.assertEqual(self.mistakes(self.FIELD, {}, ["log_norm"]), [])
        found = self.mistakes(self.FIELD, {"megatron/x.cpp": "return logging.norm;\n"}, ["log_norm"])
        self.assertEqual(found, ["tools/check_field_readers.py: log_norm has a reader now: remove it from EXCEPTIONS"])


if __name__ == "__main__":
    unittest.main()
