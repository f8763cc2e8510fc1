// Runs of characters of one script.
#pragma once

#include <string>

namespace megatron::hugging_face {

/// A pattern (Perl syntax) that matches maximal runs of one script. Hiragana, Katakana and U+30FC count as Han, as in
/// SentencePiece; spaces and unassigned characters continue the run before them.
std::string script_runs_pattern();

}  // namespace megatron::hugging_face
