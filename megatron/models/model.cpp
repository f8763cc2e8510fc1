#include "megatron/models/model.h"

#include "megatron/base/error.h"
#include "megatron/models/model_family.h"

namespace megatron {
namespace {

[[noreturn]] void refuse_generation() {
  throw NotSupported("[generate] this model does not continue a text. Generate with a decoder, such as a GPT.");
}

}  // namespace

PipelineLayout whole_layout(const TransformerConfig& config) {
  PipelineLayout layout({}, {config.num_layers});
  layout.set_mtp_layers(0, config.mtp.num_layers);
  return layout;
}

void Model::initialize(const Context& ctx) {
  for (Parameter* parameter : parameters()) parameter->initialize(ctx);
}

Tensor Model::logits(Context&, const Tensor&, const SequenceLayout&, const LayerStates*) const { refuse_generation(); }

LayerStates Model::make_states(const Context&, const LayerStateSizes&) const { refuse_generation(); }

}  // namespace megatron
