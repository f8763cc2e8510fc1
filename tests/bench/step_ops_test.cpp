// The cases that bench measures are the ops that a step launches: as many, of the same sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>

#include "megatron/bench/step_kernels.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::gpt2_like;
using testing::llama_like;
using testing::small_config;

/// Ops of one name, forward or backward.
struct OpCount {
  double launches = 0, elements = 0;  // of the shapes that ops note
  bool operator==(const OpCount&) const = default;
};
using OpCounts = std::map<std::string, OpCount>;

std::ostream& operator<<(std::ostream& out, const OpCount& count) {
  return out << count.launches << " launches of " << count.elements << " elements";
}

std::string file_stem(std::string path) {
  path = path.substr(path.rfind('/') + 1);
  return path.substr(0, path.find('.'));
}

class OpCounter final : public Profiler {
 public:
  void begin_op(const OpPlace& place, const OpNote& note, const std::source_location& where) override {
    const std::string name = note.name.empty() ? file_stem(where.file_name()) : std::string(note.name);
    const bool is_backward = place.pass == Pass::kInputGradient || place.pass == Pass::kWeightGradient;
    OpCount& count = counts[name + (is_backward ? " backward" : "")];
    ++count.launches;
    if (note.shape) count.elements += static_cast<double>(note.shape->num_elements());
  }
  void end_op() noexcept override {}
  void begin_range(const RangeNote&) override {}
  void end_range() noexcept override {}

  OpCounts counts;
};

/// Products have cases of their own, whose operations are counted (StepKernels). The norm of gradients is taken a
/// buffer at a time, whatever their number: its case has all elements at once. The others move a few numbers, or some
/// of a token.
constexpr std::array kOthers = {"linear",
                                "linear backward",
                                "copy",
                                "fill",
                                "loss_seed",
                                "loss_sum",
                                "masked_sum",
                                "masked_sum backward",
                                "global_norm",
                                "copy_to_host",
                                "copy_from_host",
                                "copy_on_device",
                                "fill_zero",
                                "grouped_linear",
                                "grouped_linear backward",
                                "router",
                                "router backward",
                                "router_logits",
                                "router_logits backward",
                                "moe_metric",
                                "moe_step",
                                "sort_by_expert",
                                "permute_probs",
                                "permute_probs backward",
                                "scale"};

/// The ops of the second step of a trainer on the CPU; the first step also creates persistent state.
OpCounts ops_of_step(const PretrainConfig& config) {
  Trainer trainer(config, {.device = DeviceKind::kCpu});
  OpCounter counter;
  testing::train(trainer, 0, 1);
  trainer.device().profiler = &counter;
  testing::train(trainer, 1, 2);
  for (const char* name : kOthers) counter.counts.erase(name);
  return counter.counts;
}

OpCounts ops_of_cases(const PretrainConfig& config) {
  const StepShapes shapes = step_shapes_of(config);
  const StageParts stage = stage_parts_of(config, 0);
  BenchDevice bench(DeviceKind::kCpu, 1);
  std::vector<KernelCase> cases = memory_cases(shapes, stage, num_optimized_parameters(config, shapes, stage));
  std::ranges::move(attention_cases(shapes, stage), std::back_inserter(cases));
  OpCounts counts;
  for (const KernelCase& kernel : cases) {
    const bool is_backward = kernel.name.ends_with(" backward") || kernel.name.ends_with(" gradient");
    const KernelCall call = kernel.prepare(bench.context());
    OpCounter counter;
    bench.device().profiler = &counter;
    call();
    bench.device().profiler = nullptr;
    for (const auto& [name, count] : counter.counts) {
      OpCount& all = counts[name + (is_backward ? " backward" : "")];
      all.launches += kernel.calls * count.launches;
      all.elements += kernel.calls * count.elements;
    }
  }
  for (const char* name : kOthers) counts.erase(name);
  return counts;
}

void expect_the_ops_of_a_step(const std::string& words) {
  SCOPED_TRACE(words);
  const PretrainConfig config = small_config(words);
  EXPECT_EQ(ops_of_cases(config), ops_of_step(config));
}

TEST(StepOps, MultiHeadAttentionLaunchesTheMeasuredKernels) {
  expect_the_ops_of_a_step(gpt2_like());
  expect_the_ops_of_a_step(gpt2_like("--bf16 --hidden-dropout 0"));
  expect_the_ops_of_a_step(gpt2_like("--reset-attention-mask --reset-position-ids"));
  expect_the_ops_of_a_step(gpt2_like("--position-embedding-type rope --optimizer sgd"));
  expect_the_ops_of_a_step(gpt2_like("--position-embedding-type rope --no-rope-freq 3"));
}

TEST(StepOps, GroupedQueriesLaunchTheMeasuredKernels) {
  expect_the_ops_of_a_step(llama_like());
  expect_the_ops_of_a_step(llama_like("--bf16 --hidden-dropout 0 --global-batch-size 2"));
  expect_the_ops_of_a_step(llama_like("--reset-attention-mask"));
  expect_the_ops_of_a_step(llama_like("--no-rope-freq 2 --add-qkv-bias"));
  expect_the_ops_of_a_step(gpt2_like("--group-query-attention --num-query-groups 2"));
}

TEST(StepOps, ExpertsLaunchTheMeasuredKernels) {
  const std::string experts = "--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 24 --moe-aux-loss-coeff 0.01 ";
  expect_the_ops_of_a_step(llama_like(experts + "--hidden-dropout 0"));
  expect_the_ops_of_a_step(llama_like(experts + "--bf16 --moe-layer-freq [0,1,1]"));
}

TEST(StepOps, NormsOfQueriesAndKeysLaunchTheMeasuredKernels) {
  expect_the_ops_of_a_step(llama_like("--qk-layernorm"));
  expect_the_ops_of_a_step(llama_like("--qk-l2-norm --rotary-interleaved"));
  expect_the_ops_of_a_step(gpt2_like("--qk-layernorm --bf16"));
  expect_the_ops_of_a_step(gpt2_like("--qk-l2-norm"));
}

}  // namespace
}  // namespace megatron
