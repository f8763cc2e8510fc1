#include "megatron/base/process_identity.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace megatron {
namespace {

/// A child that waits to be killed; reaped at the latest by the destructor.
class Child {
 public:
  Child() : process_(::fork()) {
    if (process_ != 0) return;
    ::pause();
    ::_exit(0);
  }
  ~Child() {
    kill();
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t process() const { return process_; }
  /// Returns when it is a zombie.
  void kill() {
    ::kill(process_, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT);
  }
  void reap() { ::waitpid(process_, nullptr, 0); }

 private:
  pid_t process_;
};

TEST(ProcessIdentity, OfThisProcessRuns) {
  const ProcessIdentity own = own_process();
  EXPECT_EQ(own.process_id, ::getpid());
  EXPECT_GT(own.start_ticks, 0);
  EXPECT_NE(own.pid_namespace, 0);
  EXPECT_EQ(state_of(own), ProcessState::kRuns);
}

TEST(ProcessIdentity, ThatWasKilledHasEndedBeforeAndAfterItsParentAsksForItsStatus) {
  Child child;
  ProcessIdentity identity = own_process();
  identity.process_id = child.process();
  identity.start_ticks = 0;
  EXPECT_EQ(state_of(identity), ProcessState::kEnded) << "another process had this id";
  for (int64_t ticks = own_process().start_ticks; identity.start_ticks == 0; ++ticks) {
    ProcessIdentity guess = identity;
    guess.start_ticks = ticks;
    if (state_of(guess) == ProcessState::kRuns) identity = guess;
    ASSERT_LT(ticks, own_process().start_ticks + 100'000);
  }
  child.kill();
  EXPECT_EQ(state_of(identity), ProcessState::kEnded) << "a zombie";
  child.reap();
  EXPECT_EQ(state_of(identity), ProcessState::kEnded);
}

TEST(ProcessIdentity, OfAnotherHostBootOrContainerCannotBeLookedUp) {
  const auto state = [](auto change) {
    ProcessIdentity other = own_process();
    change(other);
    return state_of(other);
  };
  EXPECT_EQ(state([](ProcessIdentity& p) { p.host += "x"; }), ProcessState::kUnknown);
  EXPECT_EQ(state([](ProcessIdentity& p) { p.boot_id += "x"; }), ProcessState::kUnknown);
  EXPECT_EQ(state([](ProcessIdentity& p) { p.pid_namespace += 1; }), ProcessState::kUnknown);
}

}  // namespace
}  // namespace megatron
