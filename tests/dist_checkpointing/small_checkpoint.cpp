#include "tests/dist_checkpointing/small_checkpoint.h"

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/megatron_names.h"

namespace megatron {
namespace {

constexpr int kNumRanks = 2;
constexpr int64_t kRows = 6, kColumns = 5;
const Shape kShape{kRows, kColumns};
constexpr const char* kWeight = "decoder.layers.mlp.linear_fc2.weight";
constexpr const char* kNorm = "decoder.final_layernorm.weight";

float value(int seed, int64_t index) { return static_cast<float>(1000 * int64_t{seed} + index); }

TorchObject common_object(int seed) {
  TorchObject common;
  pickle::Object& state = common.graph.dict();
  common.graph.set(state, common_state::kIteration, common.graph.integer(seed));
  const float moments[] = {value(seed, 1), value(seed, 2)};
  common.graph.set(state, "tensor", common.add_tensor(ConstView{moments, DType::kFloat32, {2}, {1}}));
  common.root = &common.graph.list({&state});
  return common;
}

/// Columns of the weight; rank 0 has the norm and the common state too.
CheckpointMetadata write_rank(FileSystem& files, const std::string& path, int rank, int seed) {
  CheckpointWriter writer(files, path, rank);
  std::vector<float> whole(kRows * kColumns);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = value(seed, static_cast<int64_t>(i));
  const int64_t begin = rank == 0 ? 0 : 2, end = rank == 0 ? 2 : kColumns;
  writer.add_tensor(kWeight, kShape, {0, begin},
                    {whole.data() + begin, DType::kFloat32, {kRows, end - begin}, {kColumns, 1}});
  if (rank == 0) {
    writer.add_tensor(kNorm, {kColumns}, {0}, {whole.data(), DType::kFloat32, {kColumns}, {1}});
    writer.add_object(std::string(kCommonStateKey), common_object(seed));
  }
  return writer.write(1);
}

}  // namespace

void save_small(FileSystem& files, CheckpointDirectory& directory, int64_t iteration, int seed) {
  directory.begin(iteration);
  CheckpointMetadata metadata;
  for (int rank = 0; rank < kNumRanks; ++rank)
    metadata.merge(write_rank(files, directory.staging_path(iteration), rank, seed));
  directory.commit(iteration, metadata, Integrity::kNone);
}

::testing::AssertionResult holds_small(const FileSystem& files, const std::string& path, int seed) {
  try {
    const CheckpointReader reader(files, path, Verify::kChecksums);
    if (const auto problems = reader.verify(); !problems.empty()) return ::testing::AssertionFailure() << problems[0];
    float weight[kRows * kColumns], norm[kColumns];
    reader.read_tensor(kWeight, kShape, {0, 0}, {weight, DType::kFloat32, kShape, kShape.contiguous_strides()});
    reader.read_tensor(kNorm, {kColumns}, {0}, {norm, DType::kFloat32, {kColumns}, {1}});
    for (int64_t i = 0; i < kRows * kColumns; ++i)
      if (weight[i] != value(seed, i)) return ::testing::AssertionFailure() << "weight " << i << " is " << weight[i];
    for (int64_t i = 0; i < kColumns; ++i)
      if (norm[i] != value(seed, i)) return ::testing::AssertionFailure() << "norm " << i << " is " << norm[i];
    const auto common = reader.read_common_state();
    if (common.state().at(common_state::kIteration).as_int() != seed)
      return ::testing::AssertionFailure() << "other state";
  } catch (const Error& error) {
    return ::testing::AssertionFailure() << error.what();
  }
  return ::testing::AssertionSuccess();
}

}  // namespace megatron
