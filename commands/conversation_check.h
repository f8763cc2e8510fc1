// Checks files of conversations before a run trains on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/telemetry/progress.h"
#include "megatron/tokenizers/conversation_encoder.h"

namespace megatron {

/// Encodes every line of a JSON Lines file as training does.
/// @param seq_length  of the run, to count the lines that do not fit.
/// @param progress  of the lines; its task is over when this returns.
/// @return a line of a report. @throw DataError that names the first bad lines and counts all.
std::string check_conversations(const std::string& path, const ConversationEncoder& encoder,
                                std::optional<int64_t> seq_length, Progress& progress);

}  // namespace megatron
