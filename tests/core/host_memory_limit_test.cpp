#include "megatron/core/host_memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

constexpr int64_t kMiB = 1 << 20;

/// The files of a machine with 16 GiB where the process holds 40 MiB of its own and 10 MiB of files.
class HostMemoryLimit : public ::testing::Test {
 protected:
  HostMemoryLimit() {
    const int64_t page = sysconf(_SC_PAGE_SIZE);
    write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  123 kB\n");
    write("proc/self/statm", fmt_pages(400 * kMiB / page, 50 * kMiB / page, 10 * kMiB / page));
    write("proc/self/limits", address_space("unlimited"));
  }
  static std::string fmt_pages(int64_t size, int64_t resident, int64_t shared) {
    return std::to_string(size) + " " + std::to_string(resident) + " " + std::to_string(shared) + " 1 0 1 0\n";
  }
  static std::string address_space(const std::string& limit) {
    return "Limit                     Soft Limit           Hard Limit           Units     \n"
           "Max address space         " +
           limit + "            unlimited            bytes     \n";
  }
  void write(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = root_.file(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  int64_t mib(int64_t num_ranks = 1) const { return host_memory_for_arenas(num_ranks, root_.path()) / kMiB; }
  /// Returns all of a limit but a sixteenth and the memory that the process holds.
  static int64_t left_of(int64_t limit_mib) { return (limit_mib * kMiB - limit_mib * kMiB / 16) / kMiB - 40; }

  testing::ScratchDirectory root_;
};

TEST_F(HostMemoryLimit, IsThePhysicalMemoryWithoutOthers) {
  EXPECT_EQ(mib(), left_of(16 << 10));
  write("proc/self/cgroup", "0::/user.slice/run\n");
  write("sys/fs/cgroup/user.slice/run/memory.max", "max\n");
  EXPECT_EQ(mib(), left_of(16 << 10));
}

TEST_F(HostMemoryLimit, IsTheLeastOfTheCgroupAndThoseAboveIt) {
  write("proc/self/cgroup", "1:name=systemd:/x\n0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/job/memory.max", std::to_string(300 * kMiB) + "\n");
  EXPECT_EQ(mib(), left_of(300));
  write("sys/fs/cgroup/job/step/memory.max", std::to_string(200 * kMiB) + "\n");
  EXPECT_EQ(mib(), left_of(200));
}

TEST_F(HostMemoryLimit, IsThatOfTheFirstVersionOfCgroups) {
  write("proc/self/cgroup", "12:cpu,cpuacct:/y\n9:hugetlb,memory:/slurm/job_7\n0::/z\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(mib(), left_of(16 << 10));
  write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", std::to_string(301 * kMiB) + "\n");
  EXPECT_EQ(mib(), left_of(301));
}

TEST_F(HostMemoryLimit, IsFoundWhereAContainerShowsItsOwnCgroupAlone) {
  write("proc/self/cgroup", "9:memory:/docker/0123abc\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(500 * kMiB) + "\n");
  EXPECT_EQ(mib(), left_of(500));
}

TEST_F(HostMemoryLimit, LeavesRoomForTheAddressesThatAllSegmentsReserve) {
  write("proc/self/limits", address_space(std::to_string(int64_t{8} << 30)));
  EXPECT_EQ(mib(), (8192 - 512 - 400) / 6);
}

TEST_F(HostMemoryLimit, IsSharedByTheRanks) {
  EXPECT_EQ(mib(3), left_of(16 << 10) / 3);
  write("proc/self/limits", address_space(std::to_string(int64_t{8} << 30)));
  EXPECT_EQ(mib(3), (8192 - 512 - 400) / 6 / 3);
}

TEST_F(HostMemoryLimit, IsNeverNothing) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "4096\n");
  EXPECT_EQ(mib(), 1);
}

}  // namespace
}  // namespace megatron
