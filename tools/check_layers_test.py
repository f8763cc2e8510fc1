#!/usr/bin/env python3
"""Each rule of check_layers.py finds what it forbids and passes what it allows."""

import pathlib
import tempfile
import unittest

import check_layers


class CheckLayersTest(unittest.TestCase):
    def mistakes(self, files, compile_headers=False, entangled=()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(check_layers.all_mistakes(root, compile_headers, entangled))

    def assert_clean(self, files):
        self.assertEqual(self.mistakes(files), [])

    def assert_mistake(self, files, place, text):
        found = self.mistakes(files)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(place + ":"), found[0])
        self.assertIn(text, found[0])

    def test_lower_layers_may_be_included_however_far_below(self):
        self.assert_clean({
            "megatron/base/error.h": "#pragma once\n",
            "megatron/ops/linear.cpp": '#include "megatron/base/error.h"\n',
            "megatron/training/trainer.cpp": '#include "megatron/base/error.h"\n',
        })

    def test_upper_and_unrelated_layers_may_not(self):
        self.assert_mistake({
            "megatron/ops/linear.h": "#pragma once\n",
            "megatron/core/tensor.cpp": '\n#include "megatron/ops/linear.h"\n',
        }, "megatron/core/tensor.cpp:2", "core must not include ops")
        self.assert_mistake({
            "megatron/core/tensor.h": "#pragma once\n",
            "megatron/telemetry/x.cpp": '#include "megatron/core/tensor.h"\n',
        }, "megatron/telemetry/x.cpp:1", "telemetry must not include core; it may include base")

    def test_the_table_has_no_cycle_and_training_sees_all_but_bench(self):
        for layer, below in check_layers.LAYERS.items():
            for name in below:
                self.assertNotIn(layer, check_layers.reachable(name))
        self.assertEqual(check_layers.reachable("training"), set(check_layers.LAYERS) - {"bench"})

    def test_the_library_may_not_include_commands_or_tests(self):
        self.assert_mistake({
            "commands/main.h": "#pragma once\n",
            "megatron/training/x.cpp": '#include "commands/main.h"\n',
        }, "megatron/training/x.cpp:1", "only tests may include commands/")
        self.assert_clean({
            "commands/main.h": "#pragma once\n",
            "commands/main.cpp": '#include "commands/main.h"\n',
            "tests/commands/x.cpp": '#include "commands/main.h"\n',
            "examples/x.cpp": '#include "commands/main.h"\n',
        })

    def test_a_new_folder_must_be_entered_in_the_table(self):
        self.assert_mistake({
            "megatron/base/error.h": "#pragma once\n",
            "megatron/misc/x.cpp": '#include "megatron/base/error.h"\n',
        }, "megatron/misc/x.cpp:1", "not in the table")

    def test_includes_are_paths_from_the_root_of_files_that_exist(self):
        self.assert_mistake({"megatron/base/x.cpp": '#include "error.h"\n'}, "megatron/base/x.cpp:1", "path from the root")
        self.assert_mistake({"megatron/base/x.cpp": '#include "megatron/base/y.h"\n'}, "megatron/base/x.cpp:1",
                            "does not exist")
        self.assert_mistake({"megatron/base/x.cpp": "#include <megatron/base/y.h>\n"}, "megatron/base/x.cpp:1", 'with ""')

    def test_gpu_headers_belong_into_their_folders(self):
        self.assert_mistake({"megatron/core/x.cpp": "#include <cuda_runtime.h>\n"}, "megatron/core/x.cpp:1", "cuda or nccl")
        self.assert_clean({"megatron/kernels/cuda/x.cu": "#include <cuda_runtime.h>\n",
                           "megatron/comm/nccl/x.cpp": "#include <nccl.h>\n"})

    def test_headers_have_pragma_once_and_no_using_namespace_condition_or_macro(self):
        self.assert_mistake({"megatron/base/x.h": "int x();\n"}, "megatron/base/x.h:1", "#pragma once")
        self.assert_mistake({"megatron/base/x.h": "#pragma once\nusing namespace std;\n"}, "megatron/base/x.h:2",
                            "using namespace")
        self.assert_mistake({"megatron/base/x.h": "#pragma once\n#ifdef X\n#endif\n"}, "megatron/base/x.h:2",
                            "conditional")
        self.assert_mistake({"megatron/base/x.h": "#pragma once\n#define X 1\n"}, "megatron/base/x.h:2", "macros")
        self.assert_clean({"megatron/base/x.cpp": "#ifdef X\n#endif\nusing namespace std;\n"})

    def test_files_may_not_include_each_other_in_a_circle(self):
        found = self.mistakes({
            "megatron/base/x.h": '#pragma once\n#include "megatron/base/y.h"\n',
            "megatron/base/y.h": '#pragma once\n\n#include "megatron/base/z.h"\n',
            "megatron/base/z.h": '#pragma once\n#include "megatron/base/x.h"\n',
        })
        self.assertEqual(sorted(found), [
            "megatron/base/x.h:2: includes megatron/base/y.h in a circle of 3 files",
            "megatron/base/y.h:3: includes megatron/base/z.h in a circle of 3 files",
            "megatron/base/z.h:2: includes megatron/base/x.h in a circle of 3 files",
        ])

    ROOMS = {
        "megatron/base/x.h": "#pragma once\n",
        "megatron/base/x.cpp": '#include "megatron/base/room/y.h"\n',
        "megatron/base/room/y.h": "#pragma once\n",
    }
    UPWARD = {"megatron/base/room/y.cpp": '#include "megatron/base/x.h"\n'}

    def test_folders_may_not_include_each_other_in_a_circle(self):
        self.assert_clean(self.ROOMS)
        self.assertEqual(sorted(self.mistakes({**self.ROOMS, **self.UPWARD})), [
            "megatron/base/room/y.cpp:1: includes megatron/base/x.h in a circle of 2 folders",
            "megatron/base/x.cpp:1: includes megatron/base/room/y.h in a circle of 2 folders",
        ])

    def test_entangled_folders_may_as_long_as_they_do(self):
        pair = {("megatron/base", "megatron/base/room")}
        self.assertEqual(self.mistakes({**self.ROOMS, **self.UPWARD}, entangled=pair), [])
        found = self.mistakes(self.ROOMS, entangled=pair)
        self.assertEqual(len(found), 1, found)
        self.assertIn("megatron/base and megatron/base/room no longer include each other", found[0])

    def test_files_are_at_most_400_lines(self):
        self.assert_clean({"tests/x.cpp": "\n" * 400})
        self.assert_mistake({"tests/x.cpp": "\n" * 401}, "tests/x.cpp:1", "401 lines")

    def test_libraries_link_only_what_they_may_include(self):
        self.assert_clean({"megatron/core/CMakeLists.txt": "megatron_library(core DEPS megatron::base) # not megatron::ops\n"})
        self.assert_mistake({"megatron/core/CMakeLists.txt": "megatron_library(core\n  DEPS megatron::ops)\n"},
                            "megatron/core/CMakeLists.txt:2", "core must not link ops")

    def test_a_header_that_lacks_an_include_is_found_by_compiling_it(self):
        files = {"megatron/base/x.h": "#pragma once\nstd::string x();\n"}
        self.assertEqual(self.mistakes(files), [])
        self.assertIn("does not compile by itself", self.mistakes(files, compile_headers=True)[0])


if __name__ == "__main__":
    unittest.main()
