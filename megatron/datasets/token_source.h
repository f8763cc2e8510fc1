// Sequences of token ids by number, from which samples are cut.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace megatron {

/// A numbered list of token sequences. Thread-safe after construction.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// For messages: the path prefix of the files, or a description of the source.
  virtual const std::string& name() const = 0;
  virtual int64_t num_sequences() const = 0;
  /// Tokens in sequence `sequence`, 0 <= sequence < num_sequences().
  virtual int32_t sequence_length(int64_t sequence) const = 0;
  /// Fills `out` with tokens offset .. offset + out.size() of one sequence.
  /// @throw DataError if the sequence does not have them.
  virtual void read(int64_t sequence, int64_t offset, std::span<int64_t> out) const = 0;
  /// For messages: where token `position` of a sequence is stored.
  virtual std::string place_of(int64_t sequence, int64_t position) const;
};

}  // namespace megatron
