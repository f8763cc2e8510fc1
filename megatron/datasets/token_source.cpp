#include "megatron/datasets/token_source.h"

#include <fmt/core.h>

namespace megatron {

std::string TokenSource::place_of(int64_t sequence, int64_t position) const {
  return fmt::format("{}: position {} of sequence {}", name(), position, sequence);
}

}  // namespace megatron
