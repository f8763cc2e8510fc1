// The state from which a killed run of preprocess_data continues.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/preprocess_data_config.h"
#include "commands/preprocess_output.h"
#include "commands/preprocess_report.h"
#include "megatron/tokenizers/document_source.h"

namespace megatron {

class SentenceSplitter;
class Tokenizer;

struct PreprocessState {
  std::string fingerprint;  ///< of all that the output follows from
  int64_t pass = 0;         ///< of --partitions over the input
  DocumentPosition position;
  PreprocessReport::Counts counts;
  PreprocessOutput::Saved output;
};

/// The file of the state, beside the output.
std::string preprocess_state_path(const std::string& output_prefix);
/// The state in a file; none if there is no such file, or it is damaged.
std::optional<PreprocessState> read_preprocess_state(const std::string& path);
/// @throw IoError
void write_preprocess_state(const std::string& path, const PreprocessState& state);

/// Equal for two runs only if they give the same files: of the flags, the tokenizer's files, the sentence splitter (or
/// null), this build, and name, size and time of each input file. Flags without influence on the output do not count.
std::string preprocess_fingerprint(PreprocessDataConfig config, const std::vector<std::string>& files,
                                   const Tokenizer& tokenizer, const SentenceSplitter* splitter);

}  // namespace megatron
