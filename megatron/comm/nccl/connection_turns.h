// In which order the lanes of a process connect.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace megatron {

class StoreMeeting;

/// A process connects one lane at a time, and all processes in one order, that in which lanes have their last member
/// there: two that are made at once can wait for each other. Thread-safe.
class ConnectionTurns {
 public:
  explicit ConnectionTurns(StoreMeeting& meeting) : meeting_(meeting) {}

  /// Returns when all members have begun to use the lane, and its turn has come. Waits as long as it takes: the watch
  /// sees to the timeout of operations, begin_step() to that of the rest. @throw CommError after a failure
  void await(const std::string& lane, const std::vector<int>& members);
  /// Of the lane: the next one's turn comes.
  void end(const std::string& lane);

 private:
  struct Connecting {
    size_t num_members = 0;
    int64_t ticket = 0;  // 0: not known yet
  };
  bool comes_before(const std::string& name, const Connecting& other, int64_t ticket);

  StoreMeeting& meeting_;
  std::mutex mutex_;
  std::map<std::string, Connecting> connecting_;  // by lane
};

}  // namespace megatron
