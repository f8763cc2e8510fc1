// The arguments of a run that are about its model, and the model of Hugging Face's that they describe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatron/training/hugging_face/hugging_face_model.h"

namespace megatron {

/// All arguments of a run, those of the model resolved: no value is left to derive, patterns over layers are lists, and
/// what has no effect on this model is null.
hugging_face::Json model_arguments(const PretrainConfig& config);

/// The arguments that say what the weights mean and in which the two differ, such as "window_size is [4,0] there and
/// null here". @param there  arguments of a checkpoint
std::vector<std::string> model_differences(const PretrainConfig& there, const PretrainConfig& here);

/// A model of Hugging Face's that computes what the run's model computes, with a config.json from the arguments.
/// @param model_type  its family; none: the one whose models can have these arguments.
/// @param preferred_type  the family to take if it is one of several.
/// @throw NotSupported listing the arguments that the family cannot express, or the families if several can.
HuggingFaceModel model_of_arguments(const PretrainConfig& stored, const std::optional<std::string>& model_type,
                                    const std::optional<std::string>& preferred_type = {});

}  // namespace megatron
