// Megatron Core's own models and optimizers load what we write. Needs a Python with torch and megatron-core:
//   MEGATRON_REFERENCE_PYTHON=/path/to/python ctest -L reference
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>

#include "tests/parallel/layout_checkpoint.h"
#include "tests/testing/source_tree.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr const char* kSize = " --num-layers 4 --micro-batch-size 1";
constexpr const char* kDistributed = " --use-distributed-optimizer --dist-ckpt-optim-fully-reshardable";
constexpr const char* kTensorAndPipeline = " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2";

/// Checkpoints, and how load_with_megatron.py is to load each; one call of it loads all.
class MegatronLoads {
 public:
  /// @return number of the checkpoint
  size_t save(const std::string& words, const Layout& layout) {
    continue_to(words + saving(directories_.emplace_back()), layout, 2);
    return directories_.size() - 1;
  }
  /// @param how  JSON members: "optimizer", and "tensor", "pipeline", "adam", "strict" where not the default.
  void add_case(size_t checkpoint, const std::string& how) {
    arguments_ += fmt::format(" '{{\"folder\": \"{}\", {}}}'", directories_[checkpoint].file("iter_0000002"), how);
  }
  int run(const char* python) const {
    const std::string script = source_path("tests/parallel/load_with_megatron.py");
    return std::system(fmt::format("'{}' -W ignore '{}'{}", python, script, arguments_).c_str());
  }

 private:
  std::deque<ScratchDirectory> directories_;
  std::string arguments_;
};

TEST(Reference, MegatronWithTransformerEngineLoadsEveryFormOntoAnyLayout) {
  const char* python = std::getenv("MEGATRON_REFERENCE_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "set MEGATRON_REFERENCE_PYTHON to a Python with torch and megatron-core";
  MegatronLoads loads;
  const std::string gpt2 = gpt2_like(kSize), llama = llama_like(kSize);
  const size_t plain = loads.save(llama + " --bf16", {kTensorAndPipeline, 4});
  loads.add_case(plain, R"("optimizer": "plain", "tensor": 2, "pipeline": 2)");
  loads.add_case(plain, R"("optimizer": "plain", "strict": "ignore_all")");
  loads.add_case(plain, R"("optimizer": "plain", "tensor": 2, "strict": "raise_unexpected")");
  loads.add_case(plain, R"("optimizer": "none", "tensor": 2, "pipeline": 2)");
  const size_t distributed = loads.save(llama + " --bf16" + kDistributed, {" --tensor-model-parallel-size 2", 4});
  loads.add_case(distributed, R"("optimizer": "distributed", "tensor": 2)");
  loads.add_case(distributed, R"("optimizer": "distributed", "pipeline": 2)");
  const size_t one_rank_saves = loads.save(
      gpt2 + kDistributed + " --distrib-optim-fully-reshardable-mem-efficient --overlap-grad-reduce", {"", 4});
  loads.add_case(one_rank_saves, R"("optimizer": "distributed", "tensor": 2, "pipeline": 2)");
  // Megatron's local layers are those that the script builds: the order of parameters in buckets is theirs.
  const std::string buckets =
      " --transformer-impl local --use-distributed-optimizer --dist-ckpt-optim-form dp_reshardable";
  loads.add_case(loads.save(llama + " --bf16" + buckets, {" --tensor-model-parallel-size 2", 4}),
                 R"("optimizer": "distributed", "tensor": 2)");
  const size_t stages = loads.save(gpt2 + " --bf16" + buckets, {kTensorAndPipeline, 8});
  loads.add_case(stages, R"("optimizer": "distributed", "tensor": 2, "pipeline": 2)");
  const size_t fp32 = loads.save(gpt2, {kTensorAndPipeline, 8});
  loads.add_case(fp32, R"("optimizer": "plain")");
  loads.add_case(fp32, R"("optimizer": "plain", "tensor": 2, "pipeline": 2)");
  const size_t torch_adam = loads.save(gpt2 + " --bf16 --transformer-impl local", {"", 2});
  loads.add_case(torch_adam, R"("optimizer": "plain", "pipeline": 2, "adam": "torch")");
  EXPECT_EQ(loads.run(python), 0);
}

}  // namespace
}  // namespace megatron::testing
