// Layers and loss on two and four ranks against Megatron Core's (tests/golden/parallelism/tensor.safetensors).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/autograd/shard_elements.h"
#include "megatron/tensor_parallel/layers.h"
#include "megatron/tensor_parallel/lm_head_loss.h"
#include "megatron/tensor_parallel/mappings.h"
#include "megatron/tensor_parallel/vocab_parallel_embedding.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/golden_tensors.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

/// Operands and results of one rank.
class GoldenRank {
 public:
  GoldenRank(const ProcessGroup& group, bool sequence_parallel)
      : group(group), prefix_(fmt::format("tp{}{}/", group.size(), sequence_parallel ? "sp" : "")) {
    ctx.tape = &tape;
    ctx.mode = GradMode::kRecord;
  }

  Tensor operand(const std::string& name) const {
    Tensor x = ctx.empty(name, file_.shape("full/" + name), DType::kFloat32);
    const std::vector<double> values = file_.values("full/" + name);
    std::transform(values.begin(), values.end(), x.data<float>(), [](double v) { return static_cast<float>(v); });
    return x;
  }
  /// This rank's part of dimension `dim`, contiguous.
  Tensor operand_part(const std::string& name, int dim) const { return part_of(operand(name), dim); }
  Tensor part_of(const Tensor& x, int dim) const {
    const int64_t length = x.size(dim) / group.size();
    Tensor part = x.slice(dim, group.rank() * length, length), copy = ctx.empty("part", part.shape(), x.dtype());
    ConstView from = std::as_const(part).view();
    for (int64_t i = 0; i < copy.num_elements(); ++i) copy.data<float>()[i] = element(from, i);
    return copy;
  }
  Tensor integers(const std::string& name) const {
    Tensor x = ctx.empty(name, file_.shape("full/" + name), DType::kInt64, MemoryUse::kData);
    std::ranges::copy(file_.integers("full/" + name), x.data<int64_t>());
    return x;
  }
  /// Loads the whole tensor's shard and gives it a gradient.
  void load(Parameter& parameter, const std::string& name) const {
    const std::vector<double> whole = file_.values("full/" + name);
    for_each_shard_element(parameter, [&](int64_t from, int64_t to) {
      parameter.value().data<float>()[to] = static_cast<float>(whole[static_cast<size_t>(from)]);
    });
    parameter.set_main_grad(ctx.empty("grad", parameter.shape(), DType::kFloat32, MemoryUse::kGradients));
    parameter.begin_step();
  }
  void backward(const Tensor& y, const Tensor& dy) {
    tape.seed(ctx, y.slot, dy);
    tape.backward(ctx, Phase::kBW, 0);
  }
  void expect_result(const Tensor& actual, const std::string& name, int64_t length) const {
    expect_values(actual, prefix_ + name + fmt::format("/{}", group.rank()), length);
  }
  /// The same where Megatron rounds the result to bf16, to nearest: each element by half an ulp of its own.
  void expect_rounded_result(const Tensor& actual, const std::string& name, int64_t length) const {
    const std::vector<double> expected = file_.values(prefix_ + name + fmt::format("/{}", group.rank())),
                              values = values_of(actual);
    ASSERT_EQ(values.size(), expected.size()) << name;
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(values[i], expected[i],
                  epsilon(DType::kBFloat16) / 2 * std::abs(values[i]) + tolerance(DType::kFloat32, length, largest))
          << name << " element " << i;
  }
  void expect_values(const Tensor& actual, const std::string& name, int64_t length) const {
    const std::vector<double> expected = file_.values(name), values = values_of(actual);
    ASSERT_EQ(values.size(), expected.size()) << name;
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(values[i], expected[i], tolerance(DType::kFloat32, length, largest)) << name << " element " << i;
  }

 private:
  static float element(const ConstView& x, int64_t index) {
    int64_t offset = 0;
    for (int dim = x.shape.rank() - 1; dim >= 0; index /= x.shape[dim], --dim)
      offset += index % x.shape[dim] * x.strides[dim];
    return reinterpret_cast<const float*>(x.data)[offset];
  }

 public:
  ProcessGroup group;
  TestDevice device{DeviceKind::kCpu, 1};
  Context ctx = device.context();
  Tape tape{device.device};

 private:
  GoldenTensors file_{"parallelism/tensor.safetensors"};
  std::string prefix_;
};

/// Runs the test on 2 and 4 ranks.
void on_ranks(bool sequence_parallel, const std::function<void(GoldenRank&)>& function) {
  for (const int num_ranks : {2, 4})
    run_ranks(num_ranks, [&](RankContext& rank) {
      GoldenRank golden(rank.group, sequence_parallel);
      function(golden);
    });
}

/// Sizes of the file's operands.
const Shape& shape_of(const std::string& name) {
  static const GoldenTensors file("parallelism/tensor.safetensors");
  return file.shape("full/" + name);
}
const int64_t kIn = shape_of("Wc")[1], kOut = shape_of("Wc")[0], kVocabulary = shape_of("E")[0],
              kTokens = shape_of("X")[0] * shape_of("X")[1];

ParallelLinearOptions column_options(bool sequence_parallel) {
  return {.name = "linear",
          .input_size = kIn,
          .output = {.sections = {{kOut, false}}},
          .bias = true,
          .sequence_parallel = sequence_parallel};
}

TEST(TensorParallelGolden, ColumnParallelLinearIsMegatrons) {
  for (const bool sp : {false, true})
    on_ranks(sp, [=](GoldenRank& golden) {
      const ColumnParallelLinear linear(golden.ctx, column_options(sp), golden.group);
      golden.load(*linear.parameters()[0], "Wc");
      golden.load(*linear.parameters()[1], "bc");
      Tensor x = sp ? golden.operand_part("X", 0) : golden.operand("X");
      golden.tape.watch(x);
      const Tensor y = linear.forward(golden.ctx, x);
      golden.expect_result(y, "column.Y", kIn);
      golden.backward(y, golden.operand_part("dYc", 2));
      golden.expect_result(golden.tape.take_gradient(x.slot), "column.dX", kOut);
      golden.expect_result(linear.parameters()[0]->main_grad(), "column.dW", kTokens);
      golden.expect_result(linear.parameters()[1]->main_grad(), "column.db", kTokens);
    });
}

TEST(TensorParallelGolden, AGatheredColumnParallelLinearIsMegatrons) {
  on_ranks(false, [](GoldenRank& golden) {
    const ColumnParallelLinear linear(golden.ctx, column_options(false), golden.group);
    golden.load(*linear.parameters()[0], "Wc");
    golden.load(*linear.parameters()[1], "bc");
    Tensor x = golden.operand("X");
    golden.tape.watch(x);
    const Tensor y = gather_from_tensor_model_parallel_region(golden.ctx, linear.forward(golden.ctx, x), golden.group);
    golden.expect_values(y, "whole/Yc", kIn);
    golden.expect_result(y, "column_gather.Y", kIn);
    golden.backward(y, golden.operand("dYc"));
    golden.expect_result(golden.tape.take_gradient(x.slot), "column_gather.dX", kOut);
    golden.expect_result(linear.parameters()[0]->main_grad(), "column_gather.dW", kTokens);
    golden.expect_result(linear.parameters()[1]->main_grad(), "column_gather.db", kTokens);
  });
}

/// Gradient of a bias: a rank that has part of the rows has part of the sum, which finalize_model_grads completes.
Tensor column_sums(const GoldenRank& golden, const Tensor& dy) {
  Tensor sums = golden.ctx.empty("sums", {dy.size(2)}, DType::kFloat32);
  std::fill_n(sums.data<float>(), dy.size(2), 0.0F);
  for (int64_t i = 0; i < dy.num_elements(); ++i) sums.data<float>()[i % dy.size(2)] += dy.data<float>()[i];
  return sums;
}

TEST(TensorParallelGolden, RowParallelLinearIsMegatrons) {
  for (const bool sp : {false, true})
    on_ranks(sp, [=](GoldenRank& golden) {
      ParallelLinearOptions options = column_options(sp);
      options.input_size = kOut;
      options.output = {.sections = {{kIn, false}}};
      options.bias = false;  // added after the sum, by bias_dropout_add
      const RowParallelLinear linear(golden.ctx, options, golden.group);
      golden.load(*linear.parameters()[0], "Wr");
      Tensor x = golden.operand_part("Xr", 2);
      golden.tape.watch(x);
      Tensor y = linear.forward(golden.ctx, x);
      const Tensor dy = sp ? golden.operand_part("dYr", 0) : golden.operand("dYr");
      golden.backward(y, dy);
      golden.expect_result(golden.tape.take_gradient(x.slot), "row.dX", kIn);
      golden.expect_result(linear.parameters()[0]->main_grad(), "row.dW", kTokens);
      const Tensor bias = golden.operand("br");
      for (int64_t i = 0; i < y.num_elements(); ++i) y.data<float>()[i] += bias.data<float>()[i % kIn];
      golden.expect_result(y, "row.Y", kOut);
      golden.expect_result(column_sums(golden, dy), "row.db", kTokens);
    });
}

/// [s, b, h] of [b, s, h] and the other way round.
Tensor swapped(const GoldenRank& golden, const Tensor& x) {
  const int64_t h = x.size(2);
  Tensor y = golden.ctx.empty("swapped", {x.size(1), x.size(0), h}, DType::kFloat32);
  for (int64_t i = 0; i < x.size(0); ++i)
    for (int64_t j = 0; j < x.size(1); ++j)
      std::copy_n(x.data<float>() + (i * x.size(1) + j) * h, h, y.data<float>() + (j * x.size(0) + i) * h);
  return y;
}

TEST(TensorParallelGolden, VocabParallelEmbeddingIsMegatrons) {
  for (const bool sp : {false, true})
    on_ranks(sp, [=](GoldenRank& golden) {
      const VocabParallelEmbedding embedding(golden.ctx,
                                             {.name = "embedding",
                                              .vocab_size = kVocabulary,
                                              .padded_vocab_size = kVocabulary,
                                              .hidden_size = kIn,
                                              .sequence_parallel = sp},
                                             golden.group);
      golden.load(embedding.weight(), "E");
      const Tensor ids = golden.integers("ids").transpose(0, 1);
      const SequenceLayout layout = SequenceLayout::uniform(golden.ctx, {.s = ids.size(0), .b = ids.size(1)});
      const Tensor y = embedding.forward(golden.ctx, ids, nullptr, layout);
      const Tensor whole = swapped(golden, golden.operand("dE"));  // the file has [b, s, h]
      golden.backward(y, sp ? golden.part_of(whole, 0) : whole);
      golden.expect_result(embedding.weight().main_grad(), "embedding.dW", kTokens);
      golden.expect_result(sp ? y : swapped(golden, y), "embedding.Y", 1);  // without, the file has [b, s, h]
    });
}

/// Hidden states of one-hot rows make the weights the logits, so that the head's loss is that of the file's logits.
TEST(TensorParallelGolden, CrossEntropyIsMegatronsAndIsSmoothedOverTheWholeVocabulary) {
  for (const bool smooths : {false, true})
    on_ranks(false, [=](GoldenRank& golden) {
      Parameter weight(golden.ctx,
                       {.name = "weight",
                        .shard = ShardSpec::cut_by({kVocabulary, kTokens}, {.sections = {{kVocabulary, false}}}),
                        .place = {.tensor = {golden.group.rank(), golden.group.size()}}});
      const Tensor logits = golden.operand("logits");
      for_each_shard_element(weight, [&](int64_t whole, int64_t local) {
        weight.value().data<float>()[local] = logits.data<float>()[whole % kTokens * kVocabulary + whole / kTokens];
      });
      weight.set_main_grad(golden.ctx.empty("grad", weight.shape(), DType::kFloat32, MemoryUse::kGradients));
      weight.begin_step();
      Tensor hidden = golden.ctx.empty("hidden", {kTokens / 2, 2, kTokens}, DType::kFloat32);
      for (int64_t i = 0; i < hidden.num_elements(); ++i)
        hidden.data<float>()[i] = i / kTokens == i % kTokens ? 1.0F : 0.0F;
      const Tensor loss =
          lm_head_loss(golden.ctx, hidden, weight, golden.integers("target"),
                       {.vocab_size = kVocabulary, .label_smoothing = smooths ? 0.1 : 0, .group = golden.group});
      golden.expect_values(loss, smooths ? "whole/loss_smooth0.1" : "whole/loss", kVocabulary);
      // Megatron's ranks disagree, and one rank has a' = a K / (K - 1): tp*/loss_smooth0.1 is not what we compute.
      if (smooths) return;
      golden.expect_result(loss, "loss.Y", kVocabulary);
      golden.expect_result(loss, "loss_fused.Y", kVocabulary);
      golden.backward(loss, golden.operand("dloss"));
      const int64_t rows = weight.shape()[0];
      Tensor d_logits = golden.ctx.empty("d_logits", {kTokens, rows}, DType::kFloat32);  // dW transposed
      for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t v = 0; v < rows; ++v)
          d_logits.data<float>()[t * rows + v] = weight.main_grad().data<float>()[v * kTokens + t];
      golden.expect_result(d_logits, "loss.dlogits", kVocabulary);
      golden.expect_rounded_result(d_logits, "loss_fused.dlogits", kVocabulary);
    });
}

TEST(TensorParallelGolden, SizesThatDivideAreCutAndOthersRejected) {
  const nlohmann::json rows = golden_json("parallelism/shards.json", "divide");
  ASSERT_FALSE(rows.empty());
  for (const auto& row : rows) {
    SCOPED_TRACE(row.dump());
    const auto size = row[0].get<int64_t>();
    const ShardSpec spec = ShardSpec::cut_by({size}, {.sections = {{size, false}}});
    const ShardPlace place{.tensor = {0, row[1].get<int64_t>()}};
    if (row[2].is_null())
      EXPECT_THROW(spec.local_shape(place), ConfigError);
    else
      EXPECT_EQ(spec.local_shape(place), Shape{row[2].get<int64_t>()});
  }
}

TEST(TensorParallelGolden, QueryGroupsFitTheRanksThatMegatronAccepts) {
  const nlohmann::json rows = golden_json("parallelism/shards.json", "query_groups");
  ASSERT_FALSE(rows.empty());
  for (const auto& row : rows) {
    SCOPED_TRACE(row.dump());
    // A group has as many query rows, so that these always divide: Megatron's check does not read its "heads".
    const int64_t num_ranks = row["tp"];
    const ShardCut cut{.num_groups = row["groups"], .sections = {{num_ranks, false}, {1, true}, {1, true}}};
    const ShardSpec spec = ShardSpec::cut_by({cut.global_size()}, cut);
    if (row["accepted"].get<bool>())
      EXPECT_GT(spec.local_shape({.tensor = {0, num_ranks}})[0], 0);
    else
      EXPECT_THROW(spec.local_shape({.tensor = {0, num_ranks}}), ConfigError);
  }
}

}  // namespace
}  // namespace megatron::testing
