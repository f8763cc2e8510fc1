// Multi-token prediction, as a part of TransformerConfig. Names are Megatron Core's without "mtp_".
#pragma once

#include <cstdint>

#include "megatron/transformer/config_rules.h"

namespace megatron {

struct MtpConfig {
  int64_t num_layers = 0;  ///< layers behind the decoder, of the kind of its last one; each predicts one token further

  double loss_scaling_factor = 0.1;  ///< of the mean of their losses, which is added to the training loss

  void validate(ConfigRules& rules) const {
    rules.rule(num_layers >= 0, "mtp.num_layers is {}; it must not be negative", num_layers);
    rules.rule(loss_scaling_factor >= 0, "mtp.loss_scaling_factor is {}; it must not be negative", loss_scaling_factor);
  }
};

}  // namespace megatron
