#include "megatron/training/config/differences.h"

#include <array>

#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

struct GeneralDifference {
  std::string_view topic, megatron, ours;
  bool (*in_force)(const PretrainConfig&);
};

bool never(const PretrainConfig&) { return false; }

// Differences that belong to no single flag; the others are with the flag's field.
constexpr auto kGeneral = std::to_array<GeneralDifference>({
    {"padding rows of the vocabulary",
     "they take part in the softmax: the loss depends on how many there are, and so on the tensor-parallel size",
     "they take no part in the softmax, as in Hugging Face's models without them: the loss is that of every layout, "
     "and "
     "at the start lower by about ln(rows / tokens), 0.00093 for 50257 tokens in 50304 rows",
     [](const PretrainConfig& c) { return c.transformer.padded_vocab_size > c.transformer.vocab_size; }},
    {"randomness", "initial weights and dropout masks depend on ranks, stages and device",
     "initial weights and dropout masks depend on --seed and names alone: they are the same on every layout",
     [](const PretrainConfig&) { return true; }},
    {"gradients", "sums those of fp16 in fp16 unless --accumulate-allreduce-grads-in-fp32 is given",
     "gradients of fp16 are summed in fp32", [](const PretrainConfig& c) { return c.precision.fp16; }},
    {"output folders such as --save and --tensorboard-dir", "makes all missing folders of a path",
     "the same, but makes no folder directly below /: such a path is mistyped or its disk is not mounted", never},
    {"data", "fails late without a source", "one source is required", never},
    {"a number such as -1e-5", "reads it as a flag", "reads it as a number", never},
    {"nan and inf", "accepts them as numbers", "rejected", never},
    {"an empty text such as --save \"\"", "accepts it", "rejected", never},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "must be 1 on some devices",
     "no environment variable is needed; ranks on GPUs raise a value below the number of their streams to 32", never},
    {"batch-size, learning-rate and other mistakes", "stops at the first",
     "all are reported at once, before anything is allocated", never},
    {"log lines, JSON lines, TensorBoard files", "written by the last rank",
     "written by rank 0; numbers are of all ranks", [](const PretrainConfig& c) { return c.parallel.world_size > 1; }},
    {"a bf16 checkpoint in a run without --bf16",
     "loads the weights, rounded to bf16, and leaves the main parameters out",
     "main parameters become the weights where the optimizer's state is loaded", never},
    {"loading the learning-rate schedule", "stops at the first value that differs, with some already taken over",
     "lists all that differ and changes nothing", never},
    {"validation samples that a resumed run lacks, with other --eval-iters or --eval-interval",
     "fails at start, or at the end of the data", "rejected before the first step, naming the set", never},
});

}  // namespace

std::vector<Difference> differences(const PretrainConfig& config) {
  std::vector<Difference> all;
  all.reserve(std::size(kGeneral));
  for (const GeneralDifference& general : kGeneral)
    all.push_back({.topic = std::string(general.topic),
                   .megatron = std::string(general.megatron),
                   .ours = std::string(general.ours),
                   .in_force = general.in_force(config),
                   .flag = {}});
  PretrainConfig copy = config;
  describe(copy).for_each([&](const Field& field) {
    for (const FieldDifference& own : field.differences)
      all.push_back({.topic = own.topic.empty() ? field.spelling() : own.topic,
                     .megatron = own.megatron,
                     .ours = own.ours,
                     .in_force = own.in_force && own.in_force(),
                     .flag = field.spelling()});
  });
  return all;
}

std::vector<std::string> idle_settings(const PretrainConfig& config) {
  PretrainConfig copy = config;
  std::vector<std::string> texts;
  describe(copy).for_each([&](const Field& field) {
    if (field.need && !field.need->is_met() && config.given.contains(field.name))
      texts.push_back(fmt::format("{} has no effect without {}", field.spelling(), field.need->text));
  });
  return texts;
}

}  // namespace megatron
