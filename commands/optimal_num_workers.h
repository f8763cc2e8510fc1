// The benchmark of preprocess_data.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "commands/preprocess_data_config.h"
#include "megatron/tokenizers/document_encoder.h"

namespace megatron {

/// Encodes the first --max-documents documents with each number of --workers-to-check, writes no files and prints
/// Megatron's list from the fastest to the slowest.
void find_optimal_num_workers(const PreprocessDataConfig& config, const std::vector<std::string>& files,
                              const Tokenizer& tokenizer, const DocumentEncoding& encoding, std::ostream& out);

}  // namespace megatron
