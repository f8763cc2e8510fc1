// Everything that programs need of one family of models, in one place.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "megatron/datasets/host_batch.h"
#include "megatron/models/model.h"
#include "megatron/pipeline_parallel/pipeline_layout.h"
#include "megatron/transformer/module_context.h"

namespace megatron {

/// A value, of which a program may have several (docs/add_a_model.md). `megatron pretrain_NAME` trains its models.
struct ModelFamily {
  std::string name;         // "gpt"
  std::string description;  // "a GPT": what its command trains
  /// Makes this rank's stages of a model.
  std::function<std::unique_ptr<Model>(const ModuleContext& context, const PipelineLayout& layout)> make_model;
  /// Makes a micro-batch of samples that are one sequence each and whose values do not matter, for steps that are
  /// planned and not run.
  std::function<OwnedBatch(int64_t num_samples, int64_t sequence_length)> blank_batch;
  /// True if `bench` measures the kernels of its layers: the speed of training is compared with theirs.
  bool has_measured_layers = false;
};

/// The layout of a model that is whole on one rank.
PipelineLayout whole_layout(const TransformerConfig& config);

}  // namespace megatron
