#!/usr/bin/env python3
"""check_function_lengths.py finds functions that are too long and rows that are out of date, and passes others."""

import pathlib
import tempfile
import unittest

import check_function_lengths


def function(num_lines, declaration="int count(int a) {", indent=""):
    body = "\n".join(f"{indent}  if (a > {i}) a += [&] {{" + " return 1; }();" for i in range(num_lines - 2))
    return f"{indent}{declaration}\n{body}\n{indent}}}\n"


class CheckFunctionLengthsTest(unittest.TestCase):
    def mistakes(self, source, rows=""):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("megatron/area", "docs"):
                (root / name).mkdir(parents=True)
            (root / "megatron/area/a.cpp").write_text(source)
            (root / "docs/long_functions.md").write_text(rows)
            return list(check_function_lengths.mistakes(root))

    def test_a_function_of_61_lines_is_found_by_its_name_and_one_of_60_passes(self):
        found = self.mistakes("namespace x {\n\n" + function(61) + "\n" + function(60, "void brief() {") + "}  // namespace x\n")
        self.assertEqual(len(found), 1)
        self.assertIn("megatron/area/a.cpp:3: count has 61 lines", found[0])

    def test_members_templates_and_constructors_are_functions(self):
        for declaration, name in (("template <class T>\n__global__ void __launch_bounds__(64) kernel(T x) {", "kernel"),
                                  ("Thing::Thing(int a)\n    : a_(a), b_(a) {", "Thing::Thing"),
                                  ("std::vector<int> Thing::all(const Map<int, int>& a) const try {", "Thing::all")):
            with self.subTest(name):
                self.assertIn(f"{name} has", "".join(self.mistakes(function(61, declaration))))
        self.assertIn("value has", "".join(self.mistakes("class A {\n" + function(61, "int value() {", "  ") + "};\n")))

    def test_tables_classes_and_comments_are_no_functions(self):
        lines = "\n".join('    {"a", 1},' for _ in range(100))
        for source in ("const std::map<std::string, int> kTable = {\n" + lines + "\n};\n",
                       "struct Long {\n" + lines + "\n};\n", "// f() {\n" + lines + "\n"):
            self.assertEqual(self.mistakes(source), [])

    def test_a_listed_function_passes_and_a_row_without_one_is_found(self):
        row = "| function | file | reason |\n|---|---|---|\n| `cou*` | `megatron/area/*.cpp` | a list |\n"
        self.assertEqual(self.mistakes(function(61), row), [])
        self.assertIn("remove the row", "".join(self.mistakes(function(60), row)))


if __name__ == "__main__":
    unittest.main()
