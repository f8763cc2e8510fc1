// Everything that programs need of one family of models, in one place.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "megatron/datasets/host_batch.h"
#include "megatron/datasets/micro_batch.h"
#include "megatron/models/family_options.h"
#include "megatron/models/model.h"
#include "megatron/pipeline_parallel/pipeline_layout.h"
#include "megatron/transformer/module_context.h"

namespace megatron {

/// A value, of which a program may have several (docs/add_a_model.md). `megatron pretrain_NAME` trains its models.
struct ModelFamily {
  std::string name;         // "gpt"
  std::string description;  // "a GPT": what its command trains
  /// Makes this rank's stages of a model. @param options  those of this family
  std::function<std::unique_ptr<Model>(const ModuleContext& context, const PipelineLayout& layout,
                                       const FamilyOptions& options)>
      make_model;
  /// Makes a micro-batch of samples that are one sequence each and whose values do not matter, for steps that are
  /// planned and not run.
  std::function<OwnedBatch(int64_t num_samples, int64_t sequence_length, const FamilyOptions& options)> blank_batch;
  /// Makes this family's tensors of a micro-batch of the tokens that the data flags name: the same ones whenever it is
  /// called with the same samples. Empty: the model reads the tensors of such a micro-batch (host_batch_of).
  std::function<OwnedBatch(const MicroBatch<int64_t>& samples, const FamilyOptions& options)> make_batch = {};
  /// The settings that only this family has.
  FamilyOptions options = {};
  /// True if `bench` measures the kernels of its layers: the speed of training is compared with theirs.
  bool has_measured_layers = false;
};

/// The layout of a model that is whole on one rank.
PipelineLayout whole_layout(const TransformerConfig& config);

}  // namespace megatron
