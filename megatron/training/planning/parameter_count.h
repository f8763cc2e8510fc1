// How many parameters a model has.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/comm/process_group_collection.h"
#include "megatron/models/model.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Rows that pad the vocabulary count, as in Megatron-LM; output weights that are tied to the embedding do not.
struct ParameterCount {
  int64_t total = 0;  ///< of the whole model
  int64_t own = 0;    ///< what this rank holds, copies of tied weights included
};

/// All ranks of a pipeline take part.
ParameterCount count_parameters(const Model& model, const ProcessGroupCollection& groups);

/// Counts the parameters of the whole model of a run, whatever its layout. Allocates nothing.
int64_t num_model_parameters(const PretrainConfig& config);

/// The line of Megatron-LM about this rank, and one about the whole model.
std::string parameter_count_text(const ParameterCount& count, const ProcessGroupCollection& groups);

}  // namespace megatron
