// Hosts and GPUs of ranks with a GPU each, which they exchange when they connect.
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
  std::vector<std::string> out_of_reach;  // visible GPUs without peer access

  std::string serialize() const;
  /// @throw CommError if the text is not a place
  static RankPlace parse(std::string_view text);
};

/// Equal for processes under the same kernel; the name of the host if that is not known.
std::string host_identity();

/// The places of all ranks of a job.
class RankPlaces {
 public:
  /// No ranks.
  RankPlaces() = default;
  explicit RankPlaces(std::vector<RankPlace> places) : places_(std::move(places)) {}
  /// @param texts  of each rank's place, by rank. @throw CommError as RankPlace::parse()
  static RankPlaces parse(const std::vector<std::string>& texts);

  /// Says whether the GPUs of two ranks can copy to each other, as far as is known: two of a host that no process sees
  /// both of count as able.
  bool reach(int rank, int other) const;
  /// Says whether every pair of them can.
  bool reach(const std::vector<int>& ranks) const;
  /// NCCL rejects two ranks of a host on one GPU. @throw ConfigError naming the ranks, the GPU, and a fix
  void require_a_gpu_each() const;

 private:
  std::vector<RankPlace> places_;  // by rank
};

}  // namespace megatron
