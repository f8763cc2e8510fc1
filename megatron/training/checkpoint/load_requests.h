// Lists the tensors of a checkpoint that a model and its optimizer read, in any precision of either.
#pragma once

#include "megatron/training/checkpoint/checkpoint_load.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// The source of weights that the run keeps in a higher precision than the checkpoint's model.
enum class WeightSource {
  kModel,       // the model's tensors, as the run that saved them computed with them
  kMainParams,  // the optimizer's main parameters if the checkpoint has them
};

/// The shard of every parameter.
LoadRequests requests_of_model(const StoredTensors& reader, Model& model, WeightSource source);

/// The place of a parameter's part that one of the optimizer's states() updates, under the checkpoint's name of the
/// parameter.
CheckpointPlacement placement_in(const StoredTensors& reader, Trainer& trainer, const OptimizerState& state);

/// Main parameters and moments. A checkpoint whose model is in fp32 or fp64 has its main parameters there.
LoadRequests requests_of_optimizer(const CheckpointReader& reader, Trainer& trainer);

/// The main parameters alone, in the highest precision that the checkpoint has: from the optimizer's state if it is
/// stored, else from the model.
LoadRequests requests_of_main_params(const CheckpointReader& reader, Trainer& trainer);

/// @throw CheckpointError if the checkpoint has the state of another optimizer.
void require_optimizer_state(const CheckpointReader& reader, const LoadRequests& requests);

}  // namespace megatron
