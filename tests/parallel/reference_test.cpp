// Megatron Core's own model and DistributedOptimizer load what we write. Needs a Python with torch and megatron-core:
//   MEGATRON_REFERENCE_PYTHON=/path/to/python ctest -L reference
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/parallel/layout_checkpoint.h"
#include "tests/testing/source_tree.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

TEST(Reference, MegatronsDistributedOptimizerLoadsOursInBf16AndFp32) {
  const char* python = std::getenv("MEGATRON_REFERENCE_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "set MEGATRON_REFERENCE_PYTHON to a Python with torch and megatron-core";
  for (const std::string precision : {"--bf16 ", ""})
    for (const Layout& layout :
         {Layout{" --use-distributed-optimizer", 2}, Layout{" --use-distributed-optimizer", 4},
          Layout{" --use-distributed-optimizer --tensor-model-parallel-size 2 --pipeline-model-parallel-size 3", 6},
          Layout{" --use-distributed-optimizer --tensor-model-parallel-size 2 --overlap-grad-reduce", 8}}) {
      const ScratchDirectory directory;
      continue_to(gpt2_like(precision + "--micro-batch-size 1") + saving(directory), layout, 2);
      const std::string command = fmt::format("'{}' -W ignore '{}/tests/parallel/load_with_megatron.py' '{}'", python,
                                              source_path(), directory.file("iter_0000002"));
      EXPECT_EQ(std::system(command.c_str()), 0) << precision << layout.words;
    }
}

}  // namespace
}  // namespace megatron::testing
