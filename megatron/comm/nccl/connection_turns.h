// The order in which the lanes of a process connect.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace megatron {

class StoreMeeting;

/// A process connects one lane at a time, and all processes in the same order, in which lanes get their last member:
/// two lanes that connect at once could wait for each other. Thread-safe.
class ConnectionTurns {
 public:
  explicit ConnectionTurns(StoreMeeting& meeting) : meeting_(meeting) {}

  /// Returns when all members have begun to use the lane, and its turn has come. Has no timeout: the watchdog
  /// times operations out, begin_step() the rest. @throw CommError after a failure
  void await(const std::string& lane, const std::vector<int>& members);
  /// Ends the lane's turn; the next one follows.
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
