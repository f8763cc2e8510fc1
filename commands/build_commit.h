// Which state of the sources this program was built from.
#pragma once

#include <string_view>

namespace megatron {

/// As `git describe --always --dirty` says it; "unknown" outside of a repository.
std::string_view build_commit();

}  // namespace megatron
