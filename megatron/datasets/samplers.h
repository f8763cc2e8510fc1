// The samples of a data-parallel rank, micro-batch by micro-batch. The only state is the number of consumed
// samples.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// A data-parallel rank's share of each step through the data: `micro_batch_size` samples.
struct DataParallelSlice {
  int64_t micro_batch_size = 1;
  int64_t rank = 0;
  int64_t size = 1;

  /// Samples of all ranks together.
  int64_t samples_per_step() const { return micro_batch_size * size; }
};

/// Gives the numbers of the samples of one rank's next micro-batch.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// Overwrites `indices` and advances; false at the end of the data (indices is empty then).
  virtual bool next(std::vector<int64_t>& indices) = 0;
  /// Samples that all ranks have consumed; a sampler made with this number continues from here.
  virtual int64_t consumed_samples() const = 0;
};

/// One pass in order (`--dataloader-type single`): step by step, rank r takes the r-th `micro_batch_size` samples.
/// Source: Megatron-LM, MegatronPretrainingSampler.
class SingleSampler final : public Sampler {
 public:
  /// @param drop_last  leave out a last step that is not full; else ranks may get a short or an empty micro-batch.
  /// @throw ConfigError unless 0 <= consumed_samples < total_samples and the slice is valid.
  SingleSampler(int64_t total_samples, int64_t consumed_samples, const DataParallelSlice& slice, bool drop_last);

  bool next(std::vector<int64_t>& indices) override;
  int64_t consumed_samples() const override { return consumed_; }

 private:
  int64_t total_;
  int64_t consumed_;
  DataParallelSlice slice_;
  bool drop_last_;
};

/// Endless passes, each in another random order (`--dataloader-type cyclic`). The order is seeded with the number of
/// the pass only. With `data_sharding` each rank keeps to its own part of the data, else all ranks share one order
/// (`--no-data-sharding`). All ranks take the same number of steps in a pass; the rest of it is left out.
/// Source: Megatron-LM, MegatronPretrainingRandomSampler.
class CyclicSampler final : public Sampler {
 public:
  /// @throw ConfigError if the data has no full step, consumed_samples is no whole number of steps into a pass, or the
  /// slice is not valid.
  CyclicSampler(int64_t total_samples, int64_t consumed_samples, const DataParallelSlice& slice, bool data_sharding);

  bool next(std::vector<int64_t>& indices) override;
  int64_t consumed_samples() const override { return consumed_; }

 private:
  void start_pass();

  int64_t total_;
  int64_t consumed_;
  DataParallelSlice slice_;
  bool data_sharding_;
  int64_t samples_per_pass_;
  int64_t pass_ = -1;           // the pass that order_ belongs to
  std::vector<int64_t> order_;  // with sharding: of the rank's part, else of all samples
};

/// One pass over all samples, dealt round-robin to the ranks (`--full-validation`). Ranks may differ by one.
/// Source: Megatron-LM, MegatronFullValidationSampler.
class FullValidationSampler final : public Sampler {
 public:
  /// @throw ConfigError unless 0 <= rank < num_ranks.
  FullValidationSampler(int64_t total_samples, int64_t rank, int64_t num_ranks);

  bool next(std::vector<int64_t>& indices) override;
  int64_t consumed_samples() const override;
  /// Number of samples of this rank.
  int64_t num_batches() const;

 private:
  int64_t total_;
  int64_t rank_;
  int64_t num_ranks_;
  int64_t step_ = 0;
};

}  // namespace megatron
