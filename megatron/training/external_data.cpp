#include "megatron/training/external_data.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Checks the shapes of batches that others have made.
class CheckedSource final : public BatchSource {
 public:
  CheckedSource(std::unique_ptr<BatchSource> source, int64_t micro_batch_size, int64_t sequence_length)
      : source_(std::move(source)), micro_batch_size_(micro_batch_size), sequence_length_(sequence_length) {}

  bool next(MicroBatch<int64_t>& batch) override {
    if (!source_->next(batch)) return false;
    const int64_t positions = micro_batch_size_ * sequence_length_;
    const bool fits = batch.num_samples == micro_batch_size_ && batch.sequence_length == sequence_length_ &&
                      std::ssize(batch.tokens) == positions && std::ssize(batch.labels) == positions &&
                      std::ssize(batch.position_ids) == positions && std::ssize(batch.loss_mask) == positions &&
                      std::ssize(batch.cut_ends) == micro_batch_size_;
    require<DataError>(
        fits,
        "[data] --dataloader-type external: a batch has {} samples of {} tokens ({} tokens, {} labels, {} "
        "positions, {} of the loss mask, cuts of {} samples); it must have {} of {}.",
        batch.num_samples, batch.sequence_length, batch.tokens.size(), batch.labels.size(), batch.position_ids.size(),
        batch.loss_mask.size(), batch.cut_ends.size(), micro_batch_size_, sequence_length_);
    const auto num_valid = std::ranges::count_if(batch.loss_mask, [](float weight) { return weight != 0; });
    require<DataError>(num_valid == batch.num_valid_tokens,
                       "[data] --dataloader-type external: num_valid_tokens of a batch is {}, but its loss mask has {} "
                       "positions.",
                       batch.num_valid_tokens, num_valid);
    return true;
  }

 private:
  std::unique_ptr<BatchSource> source_;
  int64_t micro_batch_size_, sequence_length_;
};

}  // namespace

std::unique_ptr<BatchSource> checked_source(std::unique_ptr<BatchSource> source, int64_t micro_batch_size,
                                            int64_t sequence_length) {
  return std::make_unique<CheckedSource>(std::move(source), micro_batch_size, sequence_length);
}

}  // namespace megatron
