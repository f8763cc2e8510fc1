// Memory of the host that a run takes in proportion to its flags, beside tensors: known before any of it is taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Host memory that a rank needs because of a flag.
struct HostTable {
  std::string what;  // "the micro-batches of a step"
  std::string flag;
  double bytes = 0;  // about, and rather too few
};

/// Those of the rank that has most: layers, micro-batches, and on a CPU the table of positions.
/// @param config  resolved, its vocabulary included
std::vector<HostTable> host_tables(const PretrainConfig& config, bool is_on_cpu);

/// @param ranks_here  that share the host. @param host_bytes  that it has for them
/// @throw OutOfMemory with each table that takes a part of the memory that counts, and its flag, if together they do
/// not fit
void require_host_tables_fit(const std::vector<HostTable>& tables, int64_t ranks_here, int64_t host_bytes);

}  // namespace megatron
