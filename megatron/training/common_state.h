// What a checkpoint keeps beside tensors, as Python objects: arguments, progress, schedule, optimizer groups.
#pragma once

#include <string>

#include "megatron/dist_checkpointing/torch_file.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Megatron's common state of this trainer: a list of one dict. @param with_optimizer false with --no-save-optim.
TorchObject make_common_state(Trainer& trainer, bool with_optimizer);

/// Takes progress over from a common state.
void load_progress(const pickle::Object& state, Trainer& trainer);
/// Takes the schedule, the step counter and the loss scale over.
void load_optimizer_state(const pickle::Object& state, Trainer& trainer);
/// The arguments of a common state as JSON text; those that are not plain values are left out.
std::string arguments_json_of(const pickle::Object& state);

}  // namespace megatron
