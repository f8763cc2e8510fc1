// What this version can run. Lift a line here when the feature arrives, and nothing else.
#include <array>

#include "megatron/training/config/pretrain_config.h"

namespace megatron {
namespace {

struct Limit {
  bool (*exceeded)(const PretrainConfig&);
  std::string_view text;
};

constexpr auto kLimits = std::to_array<Limit>({
    {[](const PretrainConfig& c) { return c.parallel.context_parallel_size > 1; }, "--context-parallel-size above 1"},
    {[](const PretrainConfig& c) { return c.precision.fp16_lm_cross_entropy; }, "--fp16-lm-cross-entropy"},
});

}  // namespace

void require_runnable(const PretrainConfig& config) {
  std::vector<std::string_view> exceeded;
  for (const Limit& limit : kLimits)
    if (limit.exceeded(config)) exceeded.push_back(limit.text);
  require<NotSupported>(exceeded.empty(), "valid, but this version of megatron.cpp cannot run it yet: {}",
                        fmt::join(exceeded, "; "));
}

}  // namespace megatron
