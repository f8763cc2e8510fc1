// A dataset of random tokens, for measurements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Files in a directory of their own, which the destructor removes. Every process that makes one for the same
/// configuration writes the same.
class RandomCorpus {
 public:
  /// Uniform tokens below --vocab-size: enough for --train-iters, at most 2^22, which then repeat.
  /// @throw IoError
  explicit RandomCorpus(const PretrainConfig& config);
  ~RandomCorpus();
  RandomCorpus(const RandomCorpus&) = delete;
  RandomCorpus& operator=(const RandomCorpus&) = delete;

  /// Flags of pretrain_gpt that train on it.
  std::vector<std::string> flags() const;

 private:
  std::string directory_;
};

}  // namespace megatron
