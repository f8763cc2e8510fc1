#include "megatron/datasets/token_check.h"

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 18;  // stays in the second-level cache

TokenFault place_of(const IndexedDataset& dataset, uint64_t byte_offset, int64_t token) {
  const auto offset = static_cast<int64_t>(byte_offset);
  const int64_t sequence = dataset.sequence_at(offset);
  const int64_t bytes = offset - dataset.sequence_pointer(sequence);
  return {.token = token,
          .document = dataset.document_of(sequence),
          .sequence = sequence,
          .position = bytes / static_cast<int64_t>(size_of(dataset.token_type())),
          .byte_offset = byte_offset};
}

/// Compares tokens as unsigned numbers: negative tokens are then large, so that the largest one shows if all are valid.
template <class Token>
TokenCheck check_tokens_of(const IndexedDataset& dataset, int64_t vocab_size,
                           const std::function<void(int64_t)>& on_progress) {
  using Unsigned = std::make_unsigned_t<Token>;
  const int64_t limit = vocab_size > 0 ? vocab_size : std::numeric_limits<int64_t>::max();
  const auto largest_right = static_cast<Unsigned>(
      std::min<uint64_t>(static_cast<uint64_t>(limit) - 1, static_cast<uint64_t>(std::numeric_limits<Token>::max())));
  TokenCheck check;
  std::vector<Unsigned> block(kBlockBytes / sizeof(Unsigned));
  const auto num_tokens = static_cast<uint64_t>(dataset.num_tokens());
  for (uint64_t begin = 0; begin < num_tokens; begin += block.size()) {
    block.resize(std::min<uint64_t>(block.size(), num_tokens - begin));
    dataset.read_token_bytes(begin * sizeof(Unsigned), std::as_writable_bytes(std::span(block)));
    Unsigned largest = 0;
    for (const Unsigned token : block) largest = std::max(largest, token);
    if (largest <= largest_right) {
      check.largest_token = std::max(check.largest_token, static_cast<int64_t>(largest));
      on_progress(static_cast<int64_t>(begin + block.size()));
      continue;
    }
    const auto wrong = std::ranges::find_if(block, [&](Unsigned token) { return token > largest_right; });
    const uint64_t number = begin + static_cast<uint64_t>(wrong - block.begin());
    check.first_fault = place_of(dataset, number * sizeof(Unsigned), static_cast<int64_t>(static_cast<Token>(*wrong)));
    break;
  }
  return check;
}

}  // namespace

TokenCheck check_tokens(const IndexedDataset& dataset, int64_t vocab_size,
                        const std::function<void(int64_t)>& on_progress) {
  switch (dataset.token_type()) {
    case TokenType::kUInt8:
      return check_tokens_of<uint8_t>(dataset, vocab_size, on_progress);
    case TokenType::kInt8:
      return check_tokens_of<int8_t>(dataset, vocab_size, on_progress);
    case TokenType::kInt16:
      return check_tokens_of<int16_t>(dataset, vocab_size, on_progress);
    case TokenType::kInt32:
      return check_tokens_of<int32_t>(dataset, vocab_size, on_progress);
    case TokenType::kInt64:
      return check_tokens_of<int64_t>(dataset, vocab_size, on_progress);
    case TokenType::kUInt16:
      return check_tokens_of<uint16_t>(dataset, vocab_size, on_progress);
    default:
      throw DataError(fmt::format("{}.idx: tokens are {}, which GPT training does not support", dataset.name(),
                                  name_of(dataset.token_type())));
  }
}

}  // namespace megatron
