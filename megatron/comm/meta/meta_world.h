// One rank of a world whose other ranks do not exist: for the memory plan of any rank of any layout.
#pragma once

#include "megatron/comm/connection.h"
#include "megatron/comm/world.h"

namespace megatron {

/// Operations are checked, numbered and recorded as on a real backend, and move nothing: with tensors of the meta
/// device, a run has the memory and the communication volume of rank `rank` of `size`.
class MetaWorld final : public World {
 public:
  MetaWorld(int rank, int size);
  void abort(std::string_view) override {}
  /// The connections of the operations until now, and how many of each kind with how many bytes there were.
  const Connections& connections() const { return connections_; }

 private:
  std::unique_ptr<ProcessGroupBackend> do_split(std::string_view name, const RankLists& groups, const Membership& own,
                                                const GroupTraits& traits) override;

  Connections connections_;
};

}  // namespace megatron
