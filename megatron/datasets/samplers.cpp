#include "megatron/datasets/samplers.h"

#include <algorithm>
#include <numeric>

#include "megatron/base/error.h"
#include "megatron/datasets/torch_random.h"

namespace megatron {
namespace {

void check_slice(const DataParallelSlice& slice) {
  require<ConfigError>(slice.micro_batch_size > 0, "--micro-batch-size {} is not positive", slice.micro_batch_size);
  require<ConfigError>(slice.size > 0 && slice.rank >= 0 && slice.rank < slice.size,
                       "data-parallel rank {} of {} does not exist", slice.rank, slice.size);
}

}  // namespace

SingleSampler::SingleSampler(int64_t total_samples, int64_t consumed_samples, const DataParallelSlice& slice,
                             bool drop_last)
    : total_(total_samples), consumed_(consumed_samples), slice_(slice), drop_last_(drop_last) {
  check_slice(slice);
  require<ConfigError>(total_ > 0, "the dataset has no sample");
  require<ConfigError>(consumed_ >= 0 && consumed_ < total_,
                       "no samples are left: {} of {} are consumed. The run is complete; raise --train-iters or "
                       "--train-samples to continue.",
                       consumed_, total_);
}

bool SingleSampler::next(std::vector<int64_t>& indices) {
  indices.clear();
  const int64_t left = total_ - consumed_;
  if (left <= 0 || (drop_last_ && left < slice_.samples_per_step())) return false;
  const int64_t begin = consumed_ + std::min(left, slice_.rank * slice_.micro_batch_size);
  const int64_t end = consumed_ + std::min(left, (slice_.rank + 1) * slice_.micro_batch_size);
  indices.resize(static_cast<size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  consumed_ += std::min(left, slice_.samples_per_step());
  return true;
}

CyclicSampler::CyclicSampler(int64_t total_samples, int64_t consumed_samples, const DataParallelSlice& slice,
                             bool data_sharding)
    : total_(total_samples), consumed_(consumed_samples), slice_(slice), data_sharding_(data_sharding) {
  check_slice(slice);
  const int64_t step = slice.samples_per_step();
  samples_per_pass_ = total_ - total_ % step;
  require<ConfigError>(
      samples_per_pass_ > 0,
      "the dataset has {} samples, fewer than one step needs (micro-batch size {} x data-parallel size "
      "{} = {}). Give more data or smaller batches.",
      total_, slice.micro_batch_size, slice.size, step);
  require<ConfigError>(
      consumed_ >= 0 && consumed_ % samples_per_pass_ % step == 0,
      "{} consumed samples are not a whole number of steps of {} samples into a pass of {}. Continue with "
      "the micro-batch and data-parallel size of the earlier run.",
      consumed_, step, samples_per_pass_);
}

void CyclicSampler::start_pass() {
  pass_ = consumed_ / samples_per_pass_;
  const int64_t parts = data_sharding_ ? slice_.samples_per_step() : slice_.micro_batch_size;
  const int64_t ordered = total_ / parts * slice_.micro_batch_size;
  order_ = torch_randperm(ordered, static_cast<uint64_t>(pass_));
}

bool CyclicSampler::next(std::vector<int64_t>& indices) {
  if (consumed_ / samples_per_pass_ != pass_) start_pass();
  const int64_t into_pass = consumed_ % samples_per_pass_;
  indices.resize(static_cast<size_t>(slice_.micro_batch_size));
  for (int64_t k = 0; k < slice_.micro_batch_size; ++k) {
    int64_t& index = indices[static_cast<size_t>(k)];
    if (data_sharding_) {
      const int64_t part_size = samples_per_pass_ / slice_.size;
      index = slice_.rank * part_size + order_[static_cast<size_t>(into_pass / slice_.size + k)];
    } else {
      index = order_[static_cast<size_t>(into_pass + slice_.rank + k * slice_.size)];
    }
  }
  consumed_ += slice_.samples_per_step();
  return true;
}

FullValidationSampler::FullValidationSampler(int64_t total_samples, int64_t rank, int64_t num_ranks)
    : total_(total_samples), rank_(rank), num_ranks_(num_ranks) {
  check_slice({.micro_batch_size = 1, .rank = rank, .size = num_ranks});
}

bool FullValidationSampler::next(std::vector<int64_t>& indices) {
  indices.clear();
  if (step_ >= num_batches()) return false;
  indices.push_back(rank_ + step_++ * num_ranks_);
  return true;
}

int64_t FullValidationSampler::consumed_samples() const { return std::min(step_ * num_ranks_, total_); }

int64_t FullValidationSampler::num_batches() const {
  return std::max<int64_t>(0, (total_ - rank_ + num_ranks_ - 1) / num_ranks_);
}

}  // namespace megatron
