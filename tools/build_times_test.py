#!/usr/bin/env python3
"""build_times.py sums the times of objects, links and tests by folder."""

import unittest

import build_times

LOG = """# ninja log v5
0\t9000\t0\tmegatron/core/CMakeFiles/megatron_core.dir/Unity/unity_0_cxx.cxx.o\ta
0\t2000\t0\tmegatron/core/CMakeFiles/megatron_core.dir/Unity/unity_0_cxx.cxx.o\tb
0\t3000\t0\tmegatron/core/CMakeFiles/megatron_core.dir/cuda/a.cpp.o\tc
0\t500\t0\tmegatron/core/libmegatron_core.a\td
0\t4000\t0\ttests/training/CMakeFiles/trainer_test.dir/config/a_test.cpp.o\te
0\t1500\t0\ttests/trainer_test\tf
""".splitlines()


class BuildTimesTest(unittest.TestCase):
    def test_times_are_those_of_the_folder_and_an_output_counts_with_its_last_build(self):
        times, _ = build_times.read_build(LOG)
        core, training = times["megatron/core"], times["tests/training"]
        self.assertEqual((core.objects, core.compiling, core.linking), (2, 5.0, 0.5))
        self.assertEqual((training.objects, training.compiling, training.linking), (1, 4.0, 1.5))

    def test_tests_are_those_of_the_folder_of_their_program(self):
        times, folders = build_times.read_build(LOG)
        tests = [{"name": "Trainer.A b", "command": ["/b/tests/trainer_test"]}, {"name": "X", "command": ["/b/x.sh"]},
                 {"name": "not built"}]
        build_times.add_tests(times, folders, tests, ["Trainer.A b 2 1.25", "X 1 0.5", "---", "X"])
        self.assertEqual((times["tests/training"].tests, times["tests/training"].running), (1, 1.25))
        self.assertEqual((times["scripts"].tests, times["scripts"].running), (1, 0.5))
        self.assertEqual(list(build_times.table(times))[-1], "| all | 3 | 9 | 2 | 2 | 2 |")

    def test_folders_with_a_small_share_are_one_row(self):
        times, _ = build_times.read_build(LOG)
        rows = list(build_times.table(times, least_share=0.51))
        self.assertEqual(rows[2:], ["| 2 others | 3 | 9 | 2 | 0 | 0 |", "| all | 3 | 9 | 2 | 0 | 0 |"])


if __name__ == "__main__":
    unittest.main()
