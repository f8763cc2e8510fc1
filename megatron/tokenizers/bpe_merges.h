// Byte-pair encoding: the merge rules and how they are applied to one word.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Which neighbours join to which token; the rule added first has rank 0 and goes first.
class BpeMerges {
 public:
  struct Rule {
    uint32_t rank;
    TokenId result;
  };
  /// Adds the rule with the next rank. @return false, and no change, if the pair has a rule already.
  bool add(TokenId left, TokenId right, TokenId result);
  /// The rule of a pair, or nullptr.
  const Rule* find(TokenId left, TokenId right) const;

 private:
  struct Hash {
    size_t operator()(uint64_t pair) const {
      pair *= 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio: spreads both halves over the upper bits
      return pair ^ pair >> 32;
    }
  };
  std::unordered_map<uint64_t, Rule, Hash> rules_;
};

/// Applies rules to words: joins the pair of the lowest rank, the leftmost of equals, until no rule applies.
/// O(n log n) in the length of the word. Refers to the rules, which must outlive it. One thread uses it at a time.
class BpeMerger {
 public:
  explicit BpeMerger(const BpeMerges& merges) : merges_(merges) {}
  /// @param symbols  ids of the characters of a word; replaced by the ids of its tokens.
  void merge(std::vector<TokenId>& symbols);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  /// A symbol in the linked list of those that are left.
  struct Node {
    TokenId id;
    uint32_t previous, next;
    bool joined;  ///< into its left neighbour
  };
  /// A pair that may join. Outdated if the node at `position` or its neighbour has changed since.
  struct Candidate {
    uint32_t rank, position;
    TokenId left, right, result;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  void propose(uint32_t position);
  bool is_current(const Candidate& candidate) const;
  void join(const Candidate& candidate);

  const BpeMerges& merges_;
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace megatron
