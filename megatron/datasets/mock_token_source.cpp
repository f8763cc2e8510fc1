#include "megatron/datasets/mock_token_source.h"

#include "megatron/base/error.h"
#include "megatron/datasets/numpy_random.h"

namespace megatron {
namespace {

constexpr uint64_t kSeed = 0;
constexpr size_t kNumSequences = 100000;
constexpr int32_t kShortest = 1;
constexpr int32_t kLengthLimit = 4096;

}  // namespace

MockTokenSource::MockTokenSource(const TokenizerFacts& tokenizer)
    : vocab_size_(tokenizer.vocab_size), eod_(tokenizer.eod), lengths_(kNumSequences) {
  require<ConfigError>(vocab_size_ > 0 && eod_ >= 0 && eod_ < vocab_size_,
                       "--mock-data needs a tokenizer: vocabulary size {}, end-of-document token {}. Give "
                       "--tokenizer-type NullTokenizer --vocab-size N.",
                       vocab_size_, eod_);
  NumpyPcg64 random(kSeed);
  for (int32_t& length : lengths_) length = random.integer(kShortest, kLengthLimit);
}

void MockTokenSource::read(int64_t sequence, int64_t offset, std::span<int64_t> out) const {
  const int64_t length = sequence_length(sequence);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t position = offset + static_cast<int64_t>(i);
    out[i] = position + 1 == length ? eod_ : (position + 1) % vocab_size_;
  }
}

}  // namespace megatron
