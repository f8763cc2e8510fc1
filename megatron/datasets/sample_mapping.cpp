#include "megatron/datasets/sample_mapping.h"

#include <fmt/core.h>

#include <cmath>
#include <random>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr int32_t kLongSentence = 512;

class MappingBuilder {
 public:
  MappingBuilder(const IndexedDataset& sentences, const SampleMappingRequest& request)
      : sentences_(sentences),
        request_(request),
        ratio_(request.short_sequence_probability > 0
                   ? static_cast<uint32_t>(std::lround(1 / request.short_sequence_probability))
                   : 0),
        random_(static_cast<uint32_t>(request.random_seed)) {}

  std::vector<SampleMappingRow> build() {
    while (std::ssize(rows_) < request_.num_samples) {
      const size_t before = rows_.size();
      for (int64_t d = request_.documents.begin; d < request_.documents.end; ++d) add_document(d);
      require<DataError>(rows_.size() > before,
                         "{}: documents {} to {} have no sample: each needs {} sentences of at most {} tokens. Split "
                         "documents into sentences when they are preprocessed, or add data",
                         sentences_.name(), request_.documents.begin, request_.documents.end, request_.min_sentences,
                         kLongSentence);
    }
    shuffle();
    return std::move(rows_);
  }

 private:
  int64_t draw_target() {
    if (ratio_ == 0) return request_.max_length;
    const uint32_t drawn = static_cast<uint32_t>(random_());
    if (drawn % ratio_ != 0) return request_.max_length;
    return 2 + drawn % static_cast<uint32_t>(request_.max_length - 1);
  }

  bool has_long_sentence(int64_t first, int64_t end) const {
    for (int64_t s = first; s < end; ++s)
      if (sentences_.sequence_length(s) > kLongSentence) return true;
    return false;
  }

  void add_document(int64_t document) {
    int64_t first = sentences_.document_index(document);
    const int64_t end = sentences_.document_index(document + 1);
    const int64_t count = end - first;
    if (count < request_.min_sentences || count == 0 || (count > 1 && has_long_sentence(first, end))) return;
    int64_t length = 0, target = draw_target();
    for (int64_t s = first; s < end; ++s) {
      length += sentences_.sequence_length(s);
      const int64_t left = end - s - 1;
      const bool is_full = length >= target && left > 1 && s + 1 - first >= request_.min_sentences;
      if (!is_full && left > 0) continue;
      rows_.push_back({first, s + 1, target});
      first = s + 1;
      length = 0;
      target = draw_target();  // behind the last one, too: the reference draws it
    }
  }

  void shuffle() {
    std::mt19937_64 random(static_cast<uint64_t>(request_.random_seed) + 1);
    for (size_t i = rows_.size(); i > 1; --i) std::swap(rows_[i - 1], rows_[random() % i]);
  }

  const IndexedDataset& sentences_;
  const SampleMappingRequest& request_;
  uint32_t ratio_;
  std::mt19937 random_;
  std::vector<SampleMappingRow> rows_;
};

}  // namespace

std::vector<SampleMappingRow> build_sample_mapping(const IndexedDataset& sentences,
                                                   const SampleMappingRequest& request) {
  require<ConfigError>(request.max_length >= 2, "samples of {} tokens are too short", request.max_length);
  require<ConfigError>(request.random_seed > 0, "--seed {} is not above 0", request.random_seed);
  return MappingBuilder(sentences, request).build();
}

}  // namespace megatron
