#include "commands/preprocess_output.h"

#include <fmt/core.h>

#include <numeric>
#include <ostream>
#include <span>

#include "megatron/base/error.h"

namespace megatron {

PreprocessOutput::PreprocessOutput(const Options& options, const Saved* saved) : token_type_(options.token_type) {
  const size_t num_keys = options.keys.size();
  require<DataError>(saved == nullptr || (saved->builders.size() == num_keys && saved->num_tokens.size() == num_keys),
                     "the saved state is of other keys");
  for (size_t k = 0; k < num_keys; ++k) {
    prefixes_.push_back(fmt::format("{}_{}_{}", options.prefix, options.keys[k], options.level));
    IndexedDatasetBuilder::Options of_builder{.token_type = options.token_type};
    if (saved != nullptr) of_builder.saved = saved->builders[k];
    builders_.push_back(std::make_unique<IndexedDatasetBuilder>(prefixes_.back(), of_builder));
    num_tokens_.push_back(saved != nullptr ? saved->num_tokens[k] : 0);
  }
}

void PreprocessOutput::add(const EncodedBatch& batch) {
  for (size_t k = 0; k < builders_.size(); ++k) add(batch.keys[k], k);
}

void PreprocessOutput::add(const EncodedDocuments& documents, size_t k) {
  std::span<const TokenId> ids = documents.ids;
  std::span<const int32_t> lengths = documents.sequence_lengths;
  for (const int32_t count : documents.num_sequences) {
    const auto of_document = lengths.first(static_cast<size_t>(count));
    const int64_t num_ids = std::accumulate(of_document.begin(), of_document.end(), int64_t{0});
    builders_[k]->add_document(ids.first(static_cast<size_t>(num_ids)), of_document);
    ids = ids.subspan(static_cast<size_t>(num_ids));
    lengths = lengths.subspan(of_document.size());
  }
  num_tokens_[k] += std::ssize(documents.ids);
}

PreprocessOutput::Saved PreprocessOutput::save() {
  Saved saved{.builders = {}, .num_tokens = num_tokens_};
  for (const auto& builder : builders_) saved.builders.push_back(builder->save());
  return saved;
}

void PreprocessOutput::finalize(std::ostream& out) {
  IndexedDatasetBuilder::finalize_together(builders_);
  for (size_t k = 0; k < builders_.size(); ++k)
    out << fmt::format("{}.bin, .idx: {} documents, {} sequences, {} tokens of {}\n", prefixes_[k],
                       builders_[k]->num_documents(), builders_[k]->num_sequences(), num_tokens_[k],
                       name_of(token_type_));
}

}  // namespace megatron
