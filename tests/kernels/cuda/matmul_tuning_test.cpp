// Tuned matmuls give the same results, and a file of choices restores the same algorithms.
#include "megatron/kernels/cuda/matmul/matmul_tuning.h"

#include "megatron/kernels/cuda/matmul/matmul.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::random_values;
using testing::Twin;

class CudaMatmulTuning : public testing::CudaTest {
 protected:
  static constexpr int64_t kM = 264, kN = 520, kK = 1048;

  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    workspace_ = Twin(DType::kUInt8, {(int64_t{1} << 25) + (1 << 16)});
    a_ = Twin(DType::kBFloat16, {kM, kK}, random_values(kM * kK, 1));
    b_ = Twin(DType::kBFloat16, {kN, kK}, random_values(kN * kK, 2));
    c_ = Twin(DType::kFloat32, {kM, kN});
  }
  MatmulArgs args() {
    return {.a = a_.gpu(), .b = b_.gpu(), .c = c_.gpu(), .transpose_b = true, .workspace = workspace_.gpu()};
  }
  std::vector<double> product(const CudaStream& stream) {
    c_.reset();
    matmul(stream, args());
    testing::check_cuda(cudaStreamSynchronize(stream.stream));
    return c_.from_gpu().values();
  }
  Twin a_, b_, c_, workspace_;
};

const MatmulTuningOptions kQuick{.num_candidates = 8, .seconds = 0.01, .num_turns = 1};

TEST_F(CudaMatmulTuning, DoesNotChangeTheResult) {
  const std::vector<double> before = product(stream_);
  const auto [key, choice] = tune_matmul(stream_, args(), kQuick);
  EXPECT_EQ(key.m, kM);
  EXPECT_GT(choice.microseconds, 0);
  EXPECT_LE(choice.microseconds, choice.first_microseconds);
  const double bound = testing::tolerance(DType::kFloat32, kK, std::sqrt(static_cast<double>(kK)) * 4);
  const std::vector<double> after = product(stream_);
  for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(after[i], before[i], 2 * bound) << i;
}

TEST_F(CudaMatmulTuning, ChoicesFromAFileGiveTheBitsOfTheTunedStream) {
  MatmulChoices choices{.gpu = "this", .library_version = cublaslt_version()};
  choices.choices.insert(tune_matmul(stream_, args(), kQuick));
  const std::vector<double> tuned = product(stream_);
  std::unique_ptr<LibraryHandles> libraries;
  const CudaStream other{.stream = stream_.stream, .libraries = &libraries};
  use_matmul_choices(other, matmul_choices_from_json(to_json(choices), "memory"));
  EXPECT_EQ(product(other), tuned);
}

TEST_F(CudaMatmulTuning, AChoiceForWorseAlignedOperandsHoldsForBetterOnes) {
  auto [key, choice] = tune_matmul(stream_, args(), kQuick);
  const std::vector<double> tuned = product(stream_);
  key.a_alignment = key.c_alignment = 16;
  std::unique_ptr<LibraryHandles> libraries;
  const CudaStream other{.stream = stream_.stream, .libraries = &libraries};
  use_matmul_choices(other, {.choices = {{key, choice}}});
  EXPECT_TRUE(used_matmuls(other).products.empty());
  EXPECT_EQ(product(other), tuned);
  EXPECT_EQ(used_matmuls(other).products, std::vector{matmul_key(args())});
  EXPECT_EQ(used_matmuls(other).num_chosen, 1);
}

TEST_F(CudaMatmulTuning, ANonsensicalAlgorithmIsRejected) {
  MatmulChoices choices;
  auto tuned = tune_matmul(stream_, args(), kQuick);
  tuned.second.algorithm.fill(~uint64_t{0});
  choices.choices.insert(tuned);
  EXPECT_THROW(use_matmul_choices(stream_, choices), NotSupported);
}

}  // namespace
}  // namespace megatron::kernels
