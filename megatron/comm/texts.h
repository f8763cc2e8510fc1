// Collectives of texts and numbers.
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

/// A number of each rank, on every rank, in group rank order.
std::vector<double> gather_numbers(const ProcessGroup& group, double number, std::string_view site);

/// Values by rank as text: "1234 on rank 0, 77 on ranks 1, 2".
std::string describe_values(const std::vector<std::string>& values);

/// Each distinct line of the texts of all ranks, as "LINE (ranks 1, 2)"; lines of all ranks are unchanged.
std::string describe_lines(const std::vector<std::string>& texts);

}  // namespace megatron
