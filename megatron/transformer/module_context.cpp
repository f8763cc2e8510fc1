#include "megatron/transformer/module_context.h"

#include <cmath>

namespace megatron {

double ModuleContext::output_init_std() const {
  return config.init_method_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

}  // namespace megatron
