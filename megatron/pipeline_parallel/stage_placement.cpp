#include "megatron/pipeline_parallel/stage_placement.h"

#include "megatron/base/error.h"

namespace megatron {

StagePlacement::StagePlacement(int num_ranks, int num_chunks, StageOrder order)
    : num_ranks_(num_ranks), num_chunks_(num_chunks), order_(order) {
  require<ConfigError>(num_ranks >= 1 && num_chunks >= 1,
                       "[StagePlacement] {} pipeline ranks with {} chunks each: a pipeline has at least one of both.",
                       num_ranks, num_chunks);
}

int StagePlacement::stage_of(StagePlace place) const {
  require(place.rank >= 0 && place.rank < num_ranks_ && place.chunk >= 0 && place.chunk < num_chunks_,
          "[StagePlacement] chunk {} of rank {} is not among the {} chunks of {} ranks.", place.chunk, place.rank,
          num_chunks_, num_ranks_);
  const bool turns_back = order_ == StageOrder::kV && place.chunk % 2 == 1;
  return place.chunk * num_ranks_ + (turns_back ? num_ranks_ - 1 - place.rank : place.rank);
}

StagePlace StagePlacement::place_of(int stage) const {
  require(stage >= 0 && stage < num_stages(), "[StagePlacement] there is no stage {} among {}.", stage, num_stages());
  const int chunk = stage / num_ranks_, position = stage % num_ranks_;
  const bool turns_back = order_ == StageOrder::kV && chunk % 2 == 1;
  return {.rank = turns_back ? num_ranks_ - 1 - position : position, .chunk = chunk};
}

}  // namespace megatron
