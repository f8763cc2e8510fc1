// The commit that this program was built from.
#pragma once

#include <string_view>

namespace megatron {

/// The output of `git describe --always --dirty`; "unknown" outside of a repository.
std::string_view build_commit();

}  // namespace megatron
