// What programs know of one family of models, in one place.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "megatron/datasets/host_batch.h"
#include "megatron/models/model.h"
#include "megatron/pipeline_parallel/pipeline_layout.h"
#include "megatron/transformer/module_context.h"

namespace megatron {

/// A value: a program has as many as it likes (docs/add_a_model.md). `megatron pretrain_NAME` trains its models.
struct ModelFamily {
  std::string name;         // "gpt"
  std::string description;  // "a GPT": what its command trains
  /// This rank's stages of a model.
  std::function<std::unique_ptr<Model>(const ModuleContext& context, const PipelineLayout& layout)> make_model;
  /// A micro-batch of samples that are one sequence each and whose values do not matter: for steps that are planned and
  /// not taken.
  std::function<OwnedBatch(int64_t num_samples, int64_t sequence_length)> blank_batch;
  /// Whether its layers are those whose kernels `bench` measures: the speed of training is held against them.
  bool has_measured_layers = false;
};

/// The layout of a model that is whole on one rank.
PipelineLayout whole_layout(const TransformerConfig& config);

}  // namespace megatron
