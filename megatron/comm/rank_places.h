// Where ranks with a GPU each compute, as they tell each other when they meet.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

struct RankPlace {
  std::string host;  // host_identity()
  std::string host_name;
  std::string gpu;                        // its address on the host's bus: "0000:1b:00.0"
  std::vector<std::string> out_of_reach;  // GPUs that it is known not to reach: of those that its process sees

  std::string serialize() const;
  /// @throw CommError if that is no place
  static RankPlace parse(std::string_view text);
};

/// The same for processes that one kernel runs; the name of the host where that cannot be told.
std::string host_identity();

/// Of all ranks of a job.
class RankPlaces {
 public:
  /// Of no ranks.
  RankPlaces() = default;
  explicit RankPlaces(std::vector<RankPlace> places) : places_(std::move(places)) {}
  /// @param texts  of each rank's place, by rank. @throw CommError as RankPlace::parse()
  static RankPlaces parse(const std::vector<std::string>& texts);

  /// Whether the GPUs of two ranks can copy to each other, as far as is known: two of a host that no process sees both
  /// of count as such.
  bool reach(int rank, int other) const;
  /// Whether each two of them do.
  bool reach(const std::vector<int>& ranks) const;
  /// NCCL refuses two ranks of a host on one GPU. @throw ConfigError naming the ranks, the GPU, and what to change
  void require_a_gpu_each() const;

 private:
  std::vector<RankPlace> places_;  // by rank
};

}  // namespace megatron
