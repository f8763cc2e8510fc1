// Synthetic sequences for runs without data (`--mock-data`).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatron/datasets/token_source.h"
#include "megatron/datasets/tokenizer_facts.h"

namespace megatron {

/// 100000 sequences of 1 to 4095 tokens: 1, 2, 3, ... modulo the vocabulary size, and the end-of-document token.
/// Source: Megatron Core, MockGPTLowLevelDataset.
class MockTokenSource final : public TokenSource {
 public:
  /// @throw ConfigError unless vocab_size is positive and eod is below it.
  explicit MockTokenSource(const TokenizerFacts& tokenizer);

  const std::string& name() const override { return name_; }
  int64_t num_sequences() const override { return static_cast<int64_t>(lengths_.size()); }
  int32_t sequence_length(int64_t sequence) const override { return lengths_[static_cast<size_t>(sequence)]; }
  void read(int64_t sequence, int64_t offset, std::span<int64_t> out) const override;

 private:
  std::string name_ = "mock data";
  int64_t vocab_size_;
  int64_t eod_;
  std::vector<int32_t> lengths_;
};

}  // namespace megatron
