#include "megatron/tokenizers/bpe_merges.h"

#include <algorithm>
#include <functional>

namespace megatron {
namespace {
uint64_t key_of(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}
}  // namespace

bool BpeMerges::add(TokenId left, TokenId right, TokenId result) {
  return rules_.emplace(key_of(left, right), Rule{static_cast<uint32_t>(rules_.size()), result}).second;
}

const BpeMerges::Rule* BpeMerges::find(TokenId left, TokenId right) const {
  const auto place = rules_.find(key_of(left, right));
  return place == rules_.end() ? nullptr : &place->second;
}

void BpeMerger::merge(std::vector<TokenId>& symbols) {
  if (symbols.size() < 2) return;
  nodes_.clear();
  heap_.clear();
  const auto size = static_cast<uint32_t>(symbols.size());
  for (uint32_t i = 0; i < size; ++i)
    nodes_.push_back({symbols[i], i == 0 ? kNone : i - 1, i + 1 == size ? kNone : i + 1, false});
  for (uint32_t i = 0; i + 1 < size; ++i) propose(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Candidate best = heap_.back();
    heap_.pop_back();
    if (is_current(best)) join(best);
  }
  symbols.clear();
  for (uint32_t i = 0; i != kNone; i = nodes_[i].next) symbols.push_back(nodes_[i].id);
}

void BpeMerger::propose(uint32_t position) {
  const TokenId left = nodes_[position].id, right = nodes_[nodes_[position].next].id;
  const BpeMerges::Rule* rule = merges_.find(left, right);
  if (rule == nullptr) return;
  heap_.push_back({rule->rank, position, left, right, rule->result});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

bool BpeMerger::is_current(const Candidate& candidate) const {
  const Node& node = nodes_[candidate.position];
  return !node.joined && node.id == candidate.left && node.next != kNone && nodes_[node.next].id == candidate.right;
}

void BpeMerger::join(const Candidate& candidate) {
  Node& node = nodes_[candidate.position];
  Node& neighbour = nodes_[node.next];
  node.id = candidate.result;
  node.next = neighbour.next;
  neighbour.joined = true;
  if (node.next != kNone) {
    nodes_[node.next].previous = candidate.position;
    propose(candidate.position);
  }
  if (node.previous != kNone) propose(node.previous);
}

}  // namespace megatron
