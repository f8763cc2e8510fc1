#include "megatron/training/checkpoint/load_requests.h"

#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/checkpoint_layout.h"
#include "megatron/training/checkpoint/optimizer_tensors.h"

namespace megatron {
namespace {

std::optional<DType> stored_dtype(const StoredTensors& reader, const std::string& key) {
  const auto type = reader.type_of(key);
  return type ? info(*type).dtype : std::nullopt;
}

bool is_finer(const std::optional<DType>& dtype, const std::optional<DType>& other) {
  return dtype && other && size_of(*dtype) > size_of(*other);
}

/// The key of a parameter's main parameters: those of a plain or of a distributed optimizer, or the model's tensor
/// where the run that saved it stepped the weights themselves. None if the checkpoint has neither.
std::optional<std::string> main_params_key(const StoredTensors& reader, const std::string& parameter_key) {
  for (std::string_view name : {optimizer_state::kMaster, optimizer_state::kDistributedMaster})
    if (std::string key = optimizer_state_key(name, parameter_key); reader.type_of(key)) return key;
  if (is_finer(stored_dtype(reader, parameter_key), DType::kBFloat16)) return parameter_key;
  return std::nullopt;
}

/// Under the name that the checkpoint has for it.
CheckpointPlacement found_in(const StoredTensors& reader, CheckpointPlacement placement) {
  placement.key = found_key(reader, placement.key);
  return placement;
}

}  // namespace

CheckpointPlacement placement_in(const StoredTensors& reader, Trainer& trainer, const OptimizerState& state) {
  return found_in(reader,
                  placement_of(*state.parameter, {state.begin, state.end}, trainer.model().config().num_layers));
}

LoadRequests requests_of_model(const StoredTensors& reader, Model& model, WeightSource source) {
  LoadRequests requests;
  for (Parameter* parameter : model.parameters()) {
    CheckpointPlacement placement = found_in(reader, placement_of(*parameter, model.config().num_layers));
    std::string key = placement.key;
    if (source == WeightSource::kMainParams && is_finer(parameter->dtype(), stored_dtype(reader, key)))
      key = main_params_key(reader, key).value_or(key);
    requests.push_back(
        {parameter, std::move(key), std::move(placement), [parameter] { return parameter->value(); }, {}});
  }
  return requests;
}

LoadRequests requests_of_optimizer(const CheckpointReader& reader, Trainer& trainer) {
  LoadRequests requests;
  for (const OptimizerState& state : trainer.optimizer().states()) {
    const CheckpointPlacement placement = placement_in(reader, trainer, state);
    for (const OptimizerTensor& named : optimizer_tensors(trainer.context(), trainer.optimizer(), state)) {
      const bool is_main = named.name == optimizer_state::kMaster;
      const std::string own = optimizer_state_key(named.name, placement.key);
      std::string key = is_main ? main_params_key(reader, placement.key).value_or(own) : own;
      requests.push_back({state.parameter, std::move(key), placement, named.tensor, named.put_back});
    }
  }
  return requests;
}

LoadRequests requests_of_main_params(const CheckpointReader& reader, Trainer& trainer) {
  LoadRequests requests;
  for (const OptimizerState& state : trainer.optimizer().states()) {
    const CheckpointPlacement placement = placement_in(reader, trainer, state);
    for (const OptimizerTensor& named : optimizer_tensors(trainer.context(), trainer.optimizer(), state))
      if (named.name == optimizer_state::kMaster)
        requests.push_back({state.parameter, main_params_key(reader, placement.key).value_or(placement.key), placement,
                            named.tensor, named.put_back});
  }
  return requests;
}

void require_optimizer_state(const CheckpointReader& reader, const LoadRequests& requests) {
  require<NotSupported>(requests.empty() || reader.optimizer_problem().empty(), "{}", reader.optimizer_problem());
  for (const LoadRequest& request : requests)
    require<CheckpointError>(reader.has_tensor(request.key),
                             "[checkpoint] there is no {}: the optimizer's state was saved with another --optimizer "
                             "or precision. Give the same ones, or take the weights alone with --no-load-optim.",
                             request.key);
}

}  // namespace megatron
