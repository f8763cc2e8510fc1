// The data of a run with --dataloader-type external.
#pragma once

#include <cstdint>
#include <memory>

#include "megatron/datasets/batch_source.h"

namespace megatron {

/// Batches that a program gives to pretrain() (PretrainEnvironment::external_data) instead of data sets. They are taken
/// as they are: which samples a rank gets, in which order, and that a resumed run goes on with the right ones, is up to
/// the program. The shapes of each batch are checked. Thread-safe: ranks that are threads share one.
class ExternalData {
 public:
  virtual ~ExternalData() = default;

  /// The training batches of a data-parallel rank, each of --micro-batch-size samples of --seq-length tokens, behind
  /// the first `consumed_samples` of all ranks. A step takes the same number of batches of every rank. Ranks that share
  /// a data-parallel rank (tensor, pipeline and context parallel ones) each make a source, and these must be equal.
  virtual std::unique_ptr<BatchSource> train(int64_t dp_rank, int64_t consumed_samples) const = 0;

  /// Says whether there are a validation set and a test set, of batches of --eval-micro-batch-size samples. An
  /// evaluation takes --eval-iters global batches.
  virtual bool has_validation() const { return false; }
  virtual bool has_test() const { return false; }
  virtual std::unique_ptr<BatchSource> validation(int64_t /*dp_rank*/, int64_t /*consumed_samples*/) const {
    return nullptr;
  }
  virtual std::unique_ptr<BatchSource> test(int64_t /*dp_rank*/) const { return nullptr; }
};

/// The same batches, of which each is checked. next() throws a DataError naming the numbers of one that does not fit.
std::unique_ptr<BatchSource> checked_source(std::unique_ptr<BatchSource> source, int64_t micro_batch_size,
                                            int64_t sequence_length);

}  // namespace megatron
