// How much memory of the host a process may take.
#pragma once

#include <cstdint>
#include <filesystem>

namespace megatron {

/// Bytes that the arenas of one of `num_ranks` ranks may hold, which are threads of this process or processes that
/// share its limits. Together: the least of the physical memory, the limits of the memory cgroup that the process is in
/// and of those above it (containers, batch systems), and what `ulimit -v` leaves to an arena; less what the process
/// holds already and a sixteenth for what it will hold beside arenas. What it holds in files that are only read does
/// not count: the system takes such pages back. At least 1 MiB, whole pages.
/// @param root  below which /proc and /sys/fs/cgroup lie.
/// Source: cgroups(7); the kernel's admin-guide/cgroup-v2 (memory.max) and cgroup-v1/memory (memory.limit_in_bytes).
int64_t host_memory_for_arenas(int64_t num_ranks = 1, const std::filesystem::path& root = "/");

}  // namespace megatron
