#include "megatron/comm/mpi/mpi_group.h"

#include <algorithm>

namespace megatron {
namespace {

/// FNV-1a (Fowler, Noll, Vo).
uint64_t hash_of(std::string_view name, const std::vector<int>& ranks) {
  uint64_t hash = 14695981039346656037ull;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
  for (char letter : name) add(static_cast<unsigned char>(letter));
  for (int rank : ranks) add(static_cast<uint64_t>(rank) + 256);
  return hash;
}

/// The oldest operation that waits for `rank`.
const MpiOperation* find_waiting(const std::deque<MpiOperationPtr>& operations, int rank) {
  for (const MpiOperationPtr& operation : operations) {
    const auto missing = operation->is_ready() ? std::vector<int>{} : operation->missing_ranks();
    if (std::find(missing.begin(), missing.end(), rank) != missing.end()) return operation.get();
  }
  return nullptr;
}

}  // namespace

MpiGroup::MpiGroup(std::string_view name, std::vector<int> ranks, int own, int split) {
  facts_ = {.name = std::string(name), .own = own, .split = split, .hash = hash_of(name, ranks)};
  facts_.ranks = std::move(ranks);
}

void MpiGroup::add(MpiOperationPtr operation) { collectives_.push_back(std::move(operation)); }

void MpiGroup::add_message(int peer, int tag, CommOp op, MpiOperationPtr message) {
  channels_[{peer, tag, op}].push_back(std::move(message));
}

void MpiGroup::advance(const MpiTransport& transport) {
  while (!collectives_.empty()) {
    collectives_.front()->advance(transport);
    if (!collectives_.front()->is_done()) break;
    collectives_.pop_front();
  }
  for (auto channel = channels_.begin(); channel != channels_.end();) {
    auto& queue = channel->second;
    for (const MpiOperationPtr& message : queue) {
      message->advance(transport);
      if (!message->is_ready()) break;
    }
    std::erase_if(queue, [](const MpiOperationPtr& message) { return message->is_done(); });
    channel = queue.empty() ? channels_.erase(channel) : std::next(channel);
  }
}

const MpiOperation* MpiGroup::find_waiting_for(int rank) const {
  if (const MpiOperation* found = find_waiting(collectives_, rank)) return found;
  for (const auto& [channel, queue] : channels_)
    if (const MpiOperation* found = find_waiting(queue, rank)) return found;
  return nullptr;
}

}  // namespace megatron
