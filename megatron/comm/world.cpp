#include "megatron/comm/world.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

void check_groups(std::string_view name, const RankLists& groups, int world_size) {
  std::vector<bool> listed(static_cast<size_t>(world_size));
  for (const auto& ranks : groups)
    for (int rank : ranks) {
      require<ConfigError>(rank >= 0 && rank < world_size, "[split {}] rank {} is not in the world of {} ranks", name,
                           rank, world_size);
      require<ConfigError>(!listed[static_cast<size_t>(rank)], "[split {}] rank {} is listed twice", name, rank);
      listed[static_cast<size_t>(rank)] = true;
    }
}

}  // namespace

World::World(int rank, int size, std::chrono::milliseconds timeout) : rank_(rank), size_(size), timeout_(timeout) {
  require<ConfigError>(rank >= 0 && rank < size, "[World] rank {} is not in a world of {} ranks", rank, size);
}

World::~World() {
  while (!groups_.empty()) groups_.pop_back();  // destroyed in the reverse order of their construction
}

std::optional<ProcessGroup> World::split(std::string_view name, const RankLists& groups, const GroupTraits& traits) {
  check_groups(name, groups, size_);
  Membership membership;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto own = std::find(groups[g].begin(), groups[g].end(), rank_);
    if (own != groups[g].end()) membership = {static_cast<int>(g), static_cast<int>(own - groups[g].begin())};
  }
  auto backend = do_split(name, groups, membership, traits);
  if (membership.group < 0) return std::nullopt;
  auto state = std::make_unique<ProcessGroupState>();
  state->name = name;
  state->traits = traits;
  state->ranks = groups[static_cast<size_t>(membership.group)];
  state->rank = membership.rank;
  state->timeout = timeout_;
  state->recorder = &recorder_;
  state->backend = std::move(backend);
  groups_.push_back(std::move(state));
  return ProcessGroup(*groups_.back());
}

void World::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  for (auto& group : groups_) group->timeout = timeout;
}

}  // namespace megatron
