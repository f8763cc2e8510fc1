#include "commands/bench/random_corpus.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "megatron/core/random.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/training/config/schedules.h"

namespace megatron {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 22;

std::string make_directory() {
  std::string name = (std::filesystem::temp_directory_path() / "megatron_bench_XXXXXX").string();
  require<IoError>(::mkdtemp(name.data()) != nullptr, "{} cannot be created: set TMPDIR to a writable directory", name);
  return name;
}

}  // namespace

RandomCorpus::RandomCorpus(const PretrainConfig& config) : directory_(make_directory()) {
  const int64_t s = config.model.seq_length.value();
  const int64_t samples =
      config.training.train_iters.value() * microbatch_calculator_of(config).at(0).running_batch_size;
  const int64_t num_documents = std::max<int64_t>(2, std::min(samples, kMostTokens / s) + 1);
  const auto vocabulary = static_cast<uint64_t>(config.transformer.vocab_size);
  IndexedDatasetBuilder builder(directory_ + "/random", {.token_type = TokenType::kInt32});
  std::vector<int64_t> tokens(static_cast<size_t>(s));
  uint64_t drawn = static_cast<uint64_t>(config.training.seed) << 40;
  for (int64_t document = 0; document < num_documents; ++document) {
    for (int64_t& token : tokens) token = static_cast<int64_t>(RandomKey::mix(drawn++) % vocabulary);
    builder.add_item(tokens);
    builder.end_document();
  }
  builder.finalize();
}

RandomCorpus::~RandomCorpus() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::vector<std::string> RandomCorpus::flags() const {
  return {"--data-path", directory_ + "/random", "--split", "1,0,0", "--data-cache-path", directory_ + "/cache"};
}

}  // namespace megatron
