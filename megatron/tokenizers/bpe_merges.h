// Byte-pair encoding: the merge rules and how they are applied to one word.
#pragma once

#include <cstdint>
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
  static constexpr uint64_t kFree = UINT64_MAX;  // ids are not negative
  struct Entry {
    uint64_t pair = kFree;
    Rule rule{};
  };
  size_t slot_of(uint64_t pair) const;
  void grow();

  std::vector<Entry> entries_;  // open addressing; the size is 0 or a power of two, and half of it is filled at most
  uint32_t num_rules_ = 0;
};

/// Applies rules to words: joins the pair of the lowest rank, the leftmost of equals, until no rule applies.
/// O(n log n) in the length n of the word, and O(n^2) where n is small, which is faster there. Refers to the rules,
/// which must outlive it. One thread uses it at a time.
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
  void merge_short(std::vector<TokenId>& symbols);
  BpeMerges::Rule rule_of(const std::vector<TokenId>& symbols, size_t position) const;
  void merge_long(std::vector<TokenId>& symbols);
  void propose(uint32_t position);
  bool is_current(const Candidate& candidate) const;
  void join(const Candidate& candidate);

  const BpeMerges& merges_;
  std::vector<BpeMerges::Rule> rules_;  // of each symbol and the next one
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace megatron
