// The ranks of the virtual stages of a pipeline.
#pragma once

namespace megatron {

/// The order in which virtual stages go through the ranks, for p ranks and chunk c of each:
/// kLoop  every chunk from rank 0 to the last: stage c * p + r is on rank r (Narayanan et al. 2021, arXiv:2104.04473,
///        section 2.2; Megatron Core).
/// kV     back and forth: odd chunks from the last rank to rank 0, so that two chunks make a V with the loss on rank 0
///        (Qi et al. 2024, arXiv:2405.15362, section 3).
enum class StageOrder { kLoop, kV };

/// A chunk of a pipeline rank.
struct StagePlace {
  int rank = 0;
  int chunk = 0;
  bool operator==(const StagePlace&) const = default;
};

/// The placement of a pipeline's virtual stages. Forward goes from stage 0 to the last, backward in reverse. A value.
class StagePlacement {
 public:
  /// One rank with one chunk.
  StagePlacement() = default;
  /// @throw ConfigError if a size is below 1.
  StagePlacement(int num_ranks, int num_chunks, StageOrder order = StageOrder::kLoop);

  int num_ranks() const { return num_ranks_; }
  /// Number of chunks of each rank.
  int num_chunks() const { return num_chunks_; }
  StageOrder order() const { return order_; }
  int num_stages() const { return num_ranks_ * num_chunks_; }

  int stage_of(StagePlace place) const;
  StagePlace place_of(int stage) const;
  bool is_first(StagePlace place) const { return stage_of(place) == 0; }
  bool is_last(StagePlace place) const { return stage_of(place) == num_stages() - 1; }
  /// The place of the next stage; this one must not be the last.
  StagePlace next(StagePlace place) const { return place_of(stage_of(place) + 1); }
  /// The place of the stage before; this one must not be the first.
  StagePlace previous(StagePlace place) const { return place_of(stage_of(place) - 1); }
  bool operator==(const StagePlacement&) const = default;

 private:
  int num_ranks_ = 1, num_chunks_ = 1;
  StageOrder order_ = StageOrder::kLoop;
};

}  // namespace megatron
