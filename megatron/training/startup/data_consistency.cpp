#include "megatron/training/startup/data_consistency.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "megatron/base/error.h"
#include "megatron/base/file_fingerprint.h"
#include "megatron/base/md5.h"
#include "megatron/base/word_list.h"
#include "megatron/comm/texts.h"

namespace megatron {
namespace {

/// One thing that ranks should have alike.
struct Input {
  std::string name, content;
};

std::vector<Input> inputs_of(const std::vector<std::string>& paths, const FileSystem& files) {
  std::vector<Input> inputs;
  for (const std::string& path : paths) {
    try {
      inputs.push_back({path, file_fingerprint(files, path)});
    } catch (const IoError& error) {
      inputs.push_back({path, fmt::format("cannot be read: {}", error.what())});
    }
  }
  return inputs;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

bool are_equal(const std::vector<std::string>& texts) {
  return std::ranges::all_of(texts, [&](const std::string& text) { return text == texts.front(); });
}

/// Lists the contents that differ: "NAME (CONTENT) on rank 0, NAME (CONTENT) on ranks 1, 2".
/// @param plural  what they are
std::vector<std::string> differences(const std::vector<Input>& own, const ProcessGroup& world,
                                     std::string_view plural) {
  std::string text;
  for (const Input& input : own) text += fmt::format("{}\n{}\n", input.name, input.content);
  // A blend of many data sets is a long text for each of many ranks.
  if (are_equal(gather_texts(world, md5_hex(std::as_bytes(std::span(text))), plural))) return {};
  const std::vector<std::string> texts = gather_texts(world, text, plural);
  std::vector<std::vector<std::string>> ranks;
  std::vector<std::string> counts;
  for (const std::string& of_rank : texts) {
    ranks.push_back(lines_of(of_rank));
    counts.push_back(fmt::format("{} {}", ranks.back().size() / 2, plural));
  }
  if (!are_equal(counts)) return {describe_values(counts)};
  std::vector<std::string> result;
  for (size_t line = 0; line < ranks.front().size(); line += 2) {
    std::vector<std::string> contents, shown;
    for (const std::vector<std::string>& rank : ranks) {
      contents.push_back(rank[line + 1]);
      shown.push_back(fmt::format("{} ({})", rank[line], rank[line + 1]));
    }
    if (!are_equal(contents)) result.push_back(describe_values(shown));
  }
  constexpr size_t kMostShown = 4;
  if (result.size() > kMostShown) {
    const size_t num_more = result.size() - kMostShown;
    result.resize(kMostShown);
    result.push_back(fmt::format("and {} more {}", num_more, plural));
  }
  return result;
}

template <class T>
void append(std::vector<std::byte>& bytes, const std::vector<T>& values) {
  const auto added = std::as_bytes(std::span(values));
  bytes.insert(bytes.end(), added.begin(), added.end());
}

/// "120 samples, md5 ..." of up to eight samples at even distances. One that cannot be read is an error when a step
/// needs it.
std::string fingerprint_of(const Dataset& dataset) {
  constexpr int64_t kSamples = 8;
  const int64_t size = dataset.size(), count = std::min(size, kSamples);
  std::vector<std::byte> bytes;
  GptSample sample;
  for (int64_t i = 0; i < count; ++i) {
    try {
      dataset.read(count == 1 ? 0 : (size - 1) * i / (count - 1), sample);
    } catch (const DataError&) {
      continue;
    }
    append(bytes, sample.tokens);
    append(bytes, sample.labels);
  }
  return fmt::format("{} samples, md5 {}", size, md5_hex(bytes));
}

}  // namespace

void require_same_files(const std::vector<std::string>& paths, const FileSystem& files, const ProcessGroup& world) {
  const std::vector<std::string> differ = differences(inputs_of(paths, files), world, "files");
  require<DataError>(differ.empty(),
                     "The ranks were given different data: {}. Copy the same files to every host, or name files that "
                     "all hosts share.",
                     joined(differ, "; "));
}

void require_same_samples(const GptDatasets& datasets, const ProcessGroup& world) {
  std::vector<Input> sets;
  if (datasets.train) sets.push_back({"training", fingerprint_of(*datasets.train)});
  for (const auto& valid : datasets.valid) sets.push_back({"validation", fingerprint_of(*valid)});
  if (datasets.test) sets.push_back({"test", fingerprint_of(*datasets.test)});
  const std::vector<std::string> differ = differences(sets, world, "data sets");
  require<DataError>(differ.empty(),
                     "The ranks take different samples from the same files: {}. Give all the same weights of data "
                     "paths; if they are, remove the caches of shuffles (in --data-cache-path, else in the folder "
                     "cache beside the data).",
                     joined(differ, "; "));
}

}  // namespace megatron
