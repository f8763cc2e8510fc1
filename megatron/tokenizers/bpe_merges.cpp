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
  if (2 * (size_t{num_rules_} + 1) > entries_.size()) grow();
  Entry& entry = entries_[slot_of(key_of(left, right))];
  if (entry.pair != kFree) return false;
  entry = {key_of(left, right), {num_rules_++, result}};
  return true;
}

const BpeMerges::Rule* BpeMerges::find(TokenId left, TokenId right) const {
  if (entries_.empty()) return nullptr;
  const Entry& entry = entries_[slot_of(key_of(left, right))];
  return entry.pair == kFree ? nullptr : &entry.rule;
}

/// Returns the slot of the pair, or a free one for it.
size_t BpeMerges::slot_of(uint64_t pair) const {
  const uint64_t mixed = pair * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio: spreads both ids over the upper bits
  size_t slot = (mixed >> 32) & (entries_.size() - 1);
  while (entries_[slot].pair != pair && entries_[slot].pair != kFree) slot = (slot + 1) & (entries_.size() - 1);
  return slot;
}

void BpeMerges::grow() {
  std::vector<Entry> old(std::max<size_t>(64, 2 * entries_.size()));
  old.swap(entries_);
  for (const Entry& entry : old)
    if (entry.pair != kFree) entries_[slot_of(entry.pair)] = entry;
}

void BpeMerger::merge(std::vector<TokenId>& symbols) {
  constexpr size_t kShort = 32;
  if (symbols.size() > kShort)
    merge_long(symbols);
  else if (symbols.size() > 1)
    merge_short(symbols);
}

BpeMerges::Rule BpeMerger::rule_of(const std::vector<TokenId>& symbols, size_t position) const {
  const BpeMerges::Rule* rule = merges_.find(symbols[position], symbols[position + 1]);
  return rule == nullptr ? BpeMerges::Rule{kNone, 0} : *rule;
}

void BpeMerger::merge_short(std::vector<TokenId>& symbols) {
  rules_.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) rules_.push_back(rule_of(symbols, i));
  while (!rules_.empty()) {
    const auto best = std::ranges::min_element(rules_, {}, &BpeMerges::Rule::rank);  // the leftmost of equals
    if (best->rank == kNone) return;
    const auto place = best - rules_.begin();
    symbols[static_cast<size_t>(place)] = best->result;
    symbols.erase(symbols.begin() + place + 1);
    rules_.erase(best);
    const auto position = static_cast<size_t>(place);
    if (position < rules_.size()) rules_[position] = rule_of(symbols, position);
    if (position > 0) rules_[position - 1] = rule_of(symbols, position - 1);
  }
}

void BpeMerger::merge_long(std::vector<TokenId>& symbols) {
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
