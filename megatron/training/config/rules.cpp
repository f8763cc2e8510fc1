#include "megatron/training/config/rules.h"

namespace megatron {

void resolve(PretrainConfig& config, int64_t world_size, Mistakes& mistakes) {
  resolve_model(config, mistakes);
  resolve_parallel(config, world_size, mistakes);
  check_offload(config, mistakes);
  resolve_batches(config, mistakes);
  resolve_schedule(config, mistakes);
  resolve_data(config, mistakes);
  resolve_checkpoint(config, mistakes);
  resolve_logging(config, mistakes);
  resolve_profiling(config, mistakes);
}

}  // namespace megatron
