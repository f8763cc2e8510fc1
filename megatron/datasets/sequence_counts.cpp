#include "megatron/datasets/sequence_counts.h"

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/error.h"
#include "megatron/datasets/atomic_file.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/python_json.h"

namespace megatron {

SequenceCountsByPrefix count_sequences(std::span<const std::string> prefixes) {
  SequenceCountsByPrefix counts;
  std::set<std::string> counted;
  for (const std::string& prefix : prefixes) {
    if (!counted.insert(prefix).second) continue;
    const IndexedDataset dataset(prefix, {});
    counts.emplace_back(prefix, SequenceCounts{dataset.num_sequences(), dataset.num_documents() + 1});
  }
  return counts;
}

SequenceCountsByPrefix read_sequence_counts(const std::string& path) {
  std::ifstream file(path);
  require<IoError>(file.is_open(), "{}: cannot be read", path);
  const auto json = nlohmann::ordered_json::parse(file, nullptr, false);
  require<DataError>(json.is_object(), "{}: is not a JSON object. It is made by: megatron build_sequences_per_dataset",
                     path);
  SequenceCountsByPrefix counts;
  for (const auto& [prefix, value] : json.items()) {
    const bool has_two_counts = value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                                value[1].is_number_unsigned() && value[1] > 0;
    require<DataError>(has_two_counts,
                       "{}: the value of \"{}\" is {}, not the numbers of sequences and of document indices. Make the "
                       "file again with: megatron build_sequences_per_dataset",
                       path, prefix, value.dump());
    counts.emplace_back(prefix, SequenceCounts{value[0].get<int64_t>(), value[1].get<int64_t>()});
  }
  return counts;
}

void write_sequence_counts(const std::string& path, const SequenceCountsByPrefix& counts) {
  std::string text = "{";
  for (const auto& [prefix, count] : counts)
    text += fmt::format("{}{}: [{}, {}]", text.size() > 1 ? ", " : "", PythonJson().string(prefix).text(),
                        count.num_sequences, count.num_document_indices);
  text += "}";
  const std::span<const std::byte> content = std::as_bytes(std::span(text));
  write_file_atomically(path, std::span(&content, 1));
}

}  // namespace megatron
