#include "megatron/models/model.h"

#include "megatron/base/error.h"

namespace megatron {
namespace {

[[noreturn]] void refuse_generation() {
  throw NotSupported("[generate] this model does not continue a text. Generate with a decoder, such as a GPT.");
}

}  // namespace

void Model::initialize(const Context& ctx) {
  for (Parameter* parameter : parameters()) parameter->initialize(ctx);
}

Tensor Model::logits(Context&, const Tensor&, const SequenceLayout&, const LayerStates*) const { refuse_generation(); }

LayerStates Model::make_states(const Context&, const LayerStateSizes&) const { refuse_generation(); }

}  // namespace megatron
