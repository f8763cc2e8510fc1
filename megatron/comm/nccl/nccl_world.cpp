#include "megatron/comm/nccl/nccl_world.h"

#include <fmt/ranges.h>
#include <omp.h>

#include <utility>

#include "megatron/base/error.h"
#include "megatron/comm/nccl/nccl_backend.h"
#include "megatron/comm/operation_key.h"
#include "megatron/comm/rank_failure.h"

namespace megatron {
namespace {

class NcclMember final : public World {
 public:
  NcclMember(NcclHub& hub, std::chrono::milliseconds timeout, int& num_splits,
             std::map<std::string, NcclBackend*>& groups)
      : World(hub.rank(), hub.size(), timeout), hub_(hub), num_splits_(num_splits), groups_(groups) {
    hub_.join(*this);
  }
  ~NcclMember() override {
    groups_.clear();
    hub_.leave();
  }
  void abort(std::string_view reason) override { hub_.fail(fmt::format("aborted by rank {}: {}", rank(), reason)); }

 private:
  /// NCCL waits forever for missing ranks, and mixes up ranks that split differently: here all ranks arrive and agree
  /// first.
  void agree(int split, std::string_view name, const RankLists& groups, const GroupTraits& traits) const {
    const auto key = [&](int rank) { return fmt::format("split/{}/{}", split, rank); };
    const std::string verdict_key = fmt::format("split/{}/verdict", split);
    const std::string what = fmt::format("split #{} \"{}\"", split, name);
    const std::string own = fmt::format("{}\n{} {} {}", name, groups, traits.by_copy_engine, traits.pairwise);
    if (rank() > 0) {
      hub_.meeting().store().set(key(rank()), own);
      const std::string verdict = hub_.meeting().wait_for(verdict_key, what, 0, timeout() + kForVerdict);
      require<CommError>(verdict.empty(), "{}", verdict);
      return;
    }
    std::string verdict;
    for (int other = 1; other < size() && verdict.empty(); ++other) {
      const std::string text = hub_.meeting().wait_for(key(other), what, other, timeout());
      if (text != own)
        verdict = describe_disagreement(static_cast<size_t>(split), SplitCall{0, name},
                                        SplitCall{other, std::string_view(text).substr(0, text.find('\n'))});
    }
    hub_.meeting().store().set(verdict_key, verdict);
    require<CommError>(verdict.empty(), "{}", verdict);
  }

  std::unique_ptr<ProcessGroupBackend> do_split(std::string_view name, const RankLists& groups, const Membership& own,
                                                const GroupTraits& traits) override {
    const int split = num_splits_++;
    hub_.throw_if_failed();
    if (size() > 1) agree(split, name, groups, traits);
    if (own.group < 0) return nullptr;
    auto backend = std::make_unique<NcclBackend>(hub_, NcclGroup{.name = std::string(name),
                                                                 .traits = traits,
                                                                 .id = fmt::format("{}.{}", split, own.group),
                                                                 .ranks = groups[static_cast<size_t>(own.group)],
                                                                 .own = own.rank});
    groups_[std::string(name)] = backend.get();
    return backend;
  }

  static constexpr std::chrono::seconds kForVerdict{5};
  NcclHub& hub_;
  int& num_splits_;
  std::map<std::string, NcclBackend*>& groups_;
};

}  // namespace

NcclWorld::NcclWorld(const Options& options)
    : hub_(std::make_unique<NcclHub>(
          NcclHub::Options{.meeting = {options.rank, options.size, options.store, options.timeout},
                           .device = options.device,
                           .compute = options.compute_stream,
                           .copies_between_gpus = options.copies_between_gpus,
                           .may_share_gpus = options.may_share_gpus})) {}

NcclWorld::~NcclWorld() = default;

int NcclWorld::rank() const { return hub_->rank(); }
int NcclWorld::size() const { return hub_->size(); }

std::unique_ptr<World> NcclWorld::join(std::chrono::milliseconds timeout) {
  return std::make_unique<NcclMember>(*hub_, timeout, num_splits_, groups_);
}

void NcclWorld::set_compute_stream(CUstream_st* stream) { hub_->set_compute_stream(stream); }
void NcclWorld::connect(const Connections& connections) {
  for (const auto& [connection, use] : connections) {
    const auto group = groups_.find(connection.group);
    require<CommError>(group != groups_.end(), "[NcclWorld] rank {} has no group \"{}\" to connect", rank(),
                       connection.group);
    group->second->connect(connection, use);
  }
}
void NcclWorld::begin_step() { hub_->begin_step(); }
void NcclWorld::throw_if_failed() const { hub_->throw_if_failed(); }
void NcclWorld::end_step() noexcept { hub_->end_step(); }
std::string NcclWorld::transports() const { return hub_->transports(); }
const RankPlaces& NcclWorld::places() const { return hub_->places(); }
void NcclWorld::begin_recording() { hub_->begin_recording(); }
void NcclWorld::end_recording() noexcept { hub_->end_recording(); }
void NcclWorld::begin_graph_step(std::string_view site, std::string_view change) {
  hub_->begin_graph_step(site, change);
}
void NcclWorld::launch_graph(std::string_view site, const std::function<void()>& launch) {
  hub_->launch_graph(site, launch);
}
int64_t NcclWorld::num_host_waits() const { return hub_->num_host_waits(); }
void NcclWorld::abort(std::string_view reason) { hub_->fail(fmt::format("aborted: {}", reason)); }
void NcclWorld::finish(std::chrono::milliseconds timeout) { hub_->meeting().finish(timeout); }

void run_nccl_rank(NcclWorld& ranks, std::chrono::milliseconds timeout, int num_threads,
                   const std::function<void(World&)>& function) {
  omp_set_num_threads(num_threads);
  const auto fail = [&](const char* text) {
    const std::string whole = fmt::format("[rank {}] {}", ranks.rank(), text);
    const std::exception_ptr cause = std::current_exception();
    ranks.abort(fmt::format("rank {} failed: {}", ranks.rank(), text));
    throw RankFailure(ranks.rank(), cause, whole);
  };
  std::unique_ptr<World> world;  // outlives the report of a failure, because leaving the world waits for the others
  try {
    world = ranks.join(timeout);
    function(*world);
    const std::chrono::milliseconds farewell = world->timeout();
    world.reset();
    ranks.finish(farewell);
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("unknown exception");
  }
}

}  // namespace megatron
