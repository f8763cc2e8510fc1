// Which settings a command line has set.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace megatron {

/// Names of the fields that were given, each with the spelling of its flag that was used last.
using GivenFields = std::map<std::string, std::string, std::less<>>;

}  // namespace megatron
