// Texts that ranks tell each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/process_group.h"

namespace megatron {

/// The text of group rank `root`, on every rank. @param site  see CommOptions
std::string broadcast_text(const ProcessGroup& group, std::string text, int root, std::string_view site);

/// The texts of all ranks, on every rank, in group rank order.
std::vector<std::string> gather_texts(const ProcessGroup& group, const std::string& text, std::string_view site);

}  // namespace megatron
