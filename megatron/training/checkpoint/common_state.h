// The state of a checkpoint that is no tensor, as Python objects: arguments, progress, schedule, optimizer groups.
#pragma once

#include <string>

#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Megatron's common state of this trainer: a list of one dict. @param with_optimizer false with --no-save-optim.
TorchObject make_common_state(Trainer& trainer, bool with_optimizer);

/// The objects beside the buckets of the form dp_reshardable: the parameter groups, and the state of the loss scale.
/// @param of_experts  whether the optimizer has experts alone.
TorchObject make_inner_optimizer_object(Trainer& trainer, bool of_experts);
TorchObject make_scaler_object(Trainer& trainer);

/// The common state of weights that no run has trained yet: arguments and iteration 0.
TorchObject make_initial_state(const PretrainConfig& config);

/// Megatron's test of the arguments that shapes of tensors may not show. @throw CheckpointError if one differs.
void require_same_model(const pickle::Object& state, const TransformerConfig& config);
/// Takes progress over from a common state.
void load_progress(const pickle::Object& state, Trainer& trainer);
/// Takes the schedule, the step counter and the loss scale over. @throw CheckpointError if one of them is not there.
void load_optimizer_state(const CheckpointReader& reader, const CheckpointReader::CommonState& common,
                          Trainer& trainer);
/// The number of steps that an optimizer's state holds: of one of a chain, without the dict around it.
/// @param file  has the tensors of `optimizer`.
std::optional<int64_t> stored_num_steps(const TorchFile& file, const pickle::Object& optimizer);
/// A number, or a float32 tensor of one element. @throw CheckpointError for another tensor.
double stored_number(const TorchFile& file, const pickle::Object& object);
/// The arguments of a common state as JSON text; those that are not plain values are left out.
std::string arguments_json_of(const pickle::Object& state);

}  // namespace megatron
