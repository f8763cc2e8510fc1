#include "megatron/kernels/cuda/matmul/matmul_tuning.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "megatron/base/error.h"
#include "megatron/kernels/cuda/library_handles.h"
#include "megatron/kernels/cuda/matmul/matmul.h"
#include "megatron/kernels/cuda/matmul/matmul_plan.h"

namespace megatron::kernels {
namespace {

void check(cudaError_t error) {
  require<DeviceError>(error == cudaSuccess, "[matmul] tuning failed: {}.", cudaGetErrorString(error));
}

class Event {
 public:
  Event() { check(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(const CudaStream& stream) { check(cudaEventRecord(event_, stream.stream)); }
  void wait() { check(cudaEventSynchronize(event_)); }
  double microseconds_since(const Event& begin) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
    return milliseconds * 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Candidate {
  MatmulChoice choice;
  std::vector<double> turns;  // microseconds of a matmul
};

class Race {
 public:
  Race(const CudaStream& stream, const MatmulArgs& args)
      : stream_(stream), args_(args), key_(matmul_key(args)), plans_(library_handles<MatmulPlans>(stream)) {}

  const MatmulKey& key() const { return key_; }
  std::vector<Candidate> candidates(int most) const {
    std::vector<Candidate> all;
    for (const cublasLtMatmulAlgo_t& algorithm : plans_.candidates(key_, most)) {
      Candidate candidate;
      std::memcpy(candidate.choice.algorithm.data(), algorithm.data, sizeof(algorithm.data));
      all.push_back(candidate);
    }
    return all;
  }
  void choose(const Candidate& candidate) { plans_.choose({{key_, candidate.choice}}); }

  /// Microseconds of one of `count` consecutive matmuls, after `lead_in` warm-up matmuls.
  double run(const Candidate& candidate, int64_t count, int64_t lead_in = 0) {
    choose(candidate);
    for (int64_t i = 0; i < lead_in; ++i) matmul(stream_, args_);
    begin_.record(stream_);
    for (int64_t i = 0; i < count; ++i) matmul(stream_, args_);
    end_.record(stream_);
    end_.wait();
    return end_.microseconds_since(begin_) / static_cast<double>(count);
  }

 private:
  const CudaStream& stream_;
  const MatmulArgs& args_;
  MatmulKey key_;
  MatmulPlans& plans_;
  Event begin_, end_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Keeps the first candidate and those that take less than `margin` times the least time.
template <class Time>
void drop_slow(std::vector<Candidate>& candidates, double margin, const Time& time) {
  double least = time(candidates.front());
  for (const Candidate& candidate : candidates) least = std::min(least, time(candidate));
  candidates.erase(std::remove_if(candidates.begin() + 1, candidates.end(),
                                  [&](const Candidate& candidate) { return time(candidate) > margin * least; }),
                   candidates.end());
}

}  // namespace

std::pair<MatmulKey, MatmulChoice> tune_matmul(const CudaStream& stream, const MatmulArgs& args,
                                               const MatmulTuningOptions& options) {
  constexpr int64_t kShortRace = 5;
  Race race(stream, args);
  std::vector<Candidate> candidates = race.candidates(options.num_candidates);
  for (Candidate& candidate : candidates) {
    race.run(candidate, 1);  // loads the kernel
    candidate.choice.microseconds = race.run(candidate, kShortRace);
  }
  const auto short_race = [](const Candidate& candidate) { return candidate.choice.microseconds; };
  drop_slow(candidates, options.margin, short_race);
  const double best = short_race(*std::ranges::min_element(candidates, {}, short_race));
  const auto count = std::max<int64_t>(1, std::llround(options.seconds * 1e6 / best));
  race.run(candidates.front(), count);  // brings the card to its sustained clock
  for (int turn = 0; turn < options.num_turns; ++turn) {
    for (Candidate& candidate : candidates) candidate.turns.push_back(race.run(candidate, count, count / 2));
    if (turn == 0) drop_slow(candidates, options.turn_margin, [](const Candidate& c) { return c.turns[0]; });
  }
  for (Candidate& candidate : candidates) candidate.choice.microseconds = median(candidate.turns);
  const double first_microseconds = candidates.front().choice.microseconds;
  Candidate& winner =
      *std::ranges::min_element(candidates, {}, [](const Candidate& c) { return c.choice.microseconds; });
  winner.choice.first_microseconds = first_microseconds;
  race.choose(winner);
  return {race.key(), winner.choice};
}

MatmulUse used_matmuls(const CudaStream& stream) { return library_handles<MatmulPlans>(stream).use(); }

void use_matmul_choices(const CudaStream& stream, const MatmulChoices& choices) {
  library_handles<MatmulPlans>(stream).choose(choices.choices);
}

int64_t cublaslt_version() { return static_cast<int64_t>(cublasLtGetVersion()); }

}  // namespace megatron::kernels
