// Numbers of bytes for people.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

/// "3.00 GiB", in the largest unit of which there is at least one.
std::string size_text(int64_t bytes);

}  // namespace megatron
