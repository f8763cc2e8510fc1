#include "commands/optimal_num_workers.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ostream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/tokenizers/corpus_encoder.h"

namespace megatron {
namespace {

struct WorkersSpeed {
  int64_t num_workers;
  double documents_per_second;  ///< mean of the speeds at each 1,000 documents and at the end, as Megatron's
};

WorkersSpeed measure_workers(int64_t num_workers, const PreprocessDataConfig& config,
                             const std::vector<std::string>& files, const Tokenizer& tokenizer,
                             const DocumentEncoding& encoding) {
  constexpr int64_t kInterval = 1000;
  DocumentSource source({.files = files, .format = config.document_format(), .max_documents = config.max_documents});
  const auto start = std::chrono::steady_clock::now();
  int64_t num_documents = 0;
  double sum = 0;
  int64_t count = 0;
  const auto record = [&] {
    sum += static_cast<double>(num_documents) /
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++count;
  };
  encode_corpus(source, tokenizer, encoding, num_workers, [&](const EncodedBatch& batch) {
    for (size_t i = 0; i < batch.input_bytes.size(); ++i)
      if (++num_documents % kInterval == 0) record();
  });
  require<DataError>(num_documents > 0, "--find-optimal-num-workers: there are no documents. Give files with text");
  if (num_documents % kInterval != 0) record();
  return {num_workers, sum / static_cast<double>(count)};
}

}  // namespace

void find_optimal_num_workers(const PreprocessDataConfig& config, const std::vector<std::string>& files,
                              const Tokenizer& tokenizer, const DocumentEncoding& encoding, std::ostream& out) {
  std::vector<WorkersSpeed> speeds;
  for (const int64_t num_workers : config.workers_to_check) {
    out << fmt::format("Processing data with {} workers.\n", num_workers) << std::flush;
    speeds.push_back(measure_workers(num_workers, config, files, tokenizer, encoding));
  }
  std::ranges::stable_sort(speeds, std::greater<>(), &WorkersSpeed::documents_per_second);
  const std::string rule(35, '-');
  out << fmt::format("\n{}\nPerformance results (fastest → slowest):\n", rule);
  for (size_t i = 0; i < speeds.size(); ++i)
    out << fmt::format("{}. {} workers → avg. docs/s: {:.4f}\n", i + 1, speeds[i].num_workers,
                       speeds[i].documents_per_second);
  out << fmt::format("\n{}\nThe most optimal num of workers is {} with avg. preprocessed docs/s: {:.4f}.\n{}\n", rule,
                     speeds[0].num_workers, speeds[0].documents_per_second, rule);
}

}  // namespace megatron
