// Ranks of a job, one of which fails as the argument says; failure_test.cpp reads the output of all of them.
#include <dlfcn.h>

#include <csignal>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <thread>

#include "commands/launch/job.h"
#include "commands/launch/launch_environment.h"
#include "megatron/base/error.h"
#include "tests/comm/buffers.h"

namespace megatron {
namespace {

using testing::view_of;

constexpr std::chrono::milliseconds kShort{500};

void sleep(int duration_ms) { std::this_thread::sleep_for(std::chrono::milliseconds(duration_ms)); }

ProcessGroup all_of(World& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  ProcessGroup group = world.split("world", {all}).value();
  group.barrier({"start"}).wait();
  if (world.rank() == 0) std::cout << "all ranks have started" << std::endl;  // from here on the test counts seconds
  return group;
}

void reduce(const ProcessGroup& group, std::string_view site) {
  std::vector<float> buffer(3);
  group.all_reduce(view_of(buffer), ReduceOp::kSum, {site}).wait();
}

void hang(World& world, const std::function<void()>& culprit) {
  const ProcessGroup group = all_of(world);
  group.set_timeout(kShort);
  if (world.rank() == 2) culprit();
  reduce(group, "grad bucket 7");
}

void chain(World& world) {
  const ProcessGroup tp = world.split("tp", {{0, 1}, {2, 3}}).value();
  const ProcessGroup dp = world.split("dp", {{0, 2}, {1, 3}}).value();
  all_of(world);
  tp.set_timeout(kShort);
  dp.set_timeout(kShort);
  if (world.rank() == 3) sleep(60000);
  if (world.rank() != 0) dp.barrier({"gradients"}).wait();  // 1 waits for 3; 0 for 1, 2 for 0
  tp.barrier({"activations"}).wait();
  if (world.rank() == 0) dp.barrier({"gradients"}).wait();
}

/// 0 waits for 1, and 2 for 3, in operations of the same name and number.
void wait_in_two_groups(World& world) {
  const ProcessGroup tp = world.split("tp", {{0, 1}, {2, 3}}).value();
  all_of(world);
  if (world.rank() % 2 == 1) sleep(60000);
  if (world.rank() == 2) tp.set_timeout(kShort);
  tp.barrier({"activations"}).wait();
}

void call_another_operation(World& world) {
  const ProcessGroup group = all_of(world);
  std::vector<float> buffer(6), output(24);
  if (world.rank() == 1)
    group.all_gather(view_of(buffer), view_of(output), {"y"}).wait();
  else
    group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"}).wait();
}

void send_another_size(World& world) {
  const ProcessGroup group = all_of(world);
  std::vector<float> buffer(world.rank() == 0 ? 4 : 5);
  if (world.rank() == 0) group.send(view_of(buffer), 1, 3, {"activation"}).wait();
  if (world.rank() == 1) group.recv(view_of(buffer), 0, 3, {"gradient"}).wait();
  group.barrier({"end"}).wait();
}

void make_another_group(World& world) {
  all_of(world);
  world.split(world.rank() == 0 ? "tp" : "dp", {{0, 1, 2, 3}})->barrier({"x"}).wait();
}

void drop_work(World& world) {
  const ProcessGroup group = all_of(world);
  std::vector<float> buffer(6);
  if (world.rank() == 0)
    const Work dropped = group.all_reduce(view_of(buffer), ReduceOp::kSum, {"forgotten"});
  else
    sleep(1000);
  reduce(group, "x");
}

/// An exception destroys the owner of an operation.
void throw_beside_work(World& world) {
  const ProcessGroup group = all_of(world);
  std::vector<float> buffer(6);
  if (world.rank() != 1) {
    sleep(1000);
    return reduce(group, "x");
  }
  const Work work = group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"});
  throw ShapeError("five is not six");
}

/// Stops while it waits for the end of the others.
void stop_at_the_end(World& world) {
  all_of(world);
  world.set_timeout(2 * std::chrono::seconds(1));
  if (world.rank() != 1) return sleep(1000);
  std::thread([] {
    sleep(200);
    raise(SIGSTOP);
  }).detach();
}

/// Within MPI_Finalize, which begins with the attributes of MPI_COMM_SELF.
void stop_in_finalize(World& world) {
  all_of(world);
  world.set_timeout(kShort);
  if (world.rank() != 1) return;
  using Delete = int (*)(void*, int, void*, void*);
  void* mpi = dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD);
  const auto create = reinterpret_cast<int (*)(void*, Delete, int*, void*)>(dlsym(mpi, "MPI_Comm_create_keyval"));
  const auto set = reinterpret_cast<int (*)(void*, int, void*)>(dlsym(mpi, "MPI_Comm_set_attr"));
  int key = 0;
  create(
      dlsym(mpi, "OMPI_C_MPI_COMM_NULL_COPY_FN"), [](void*, int, void*, void*) { return raise(SIGSTOP); }, &key,
      nullptr);
  set(dlsym(mpi, "ompi_mpi_comm_self"), key, nullptr);
}

void run(const std::string& what, World& world) {
  const bool is_culprit = world.rank() == 1;
  if (what == "hang") return hang(world, [] { sleep(60000); });
  if (what == "stop") return hang(world, [] { raise(SIGSTOP); });
  if (what == "chain") return chain(world);
  if (what == "two groups") return wait_in_two_groups(world);
  if (what == "another operation") return call_another_operation(world);
  if (what == "another size") return send_another_size(world);
  if (what == "another group") return make_another_group(world);
  if (what == "drop") return drop_work(world);
  if (what == "stop at the end") return stop_at_the_end(world);
  if (what == "stop in finalize") return stop_in_finalize(world);
  if (what == "throw beside work") return throw_beside_work(world);
  const ProcessGroup group = all_of(world);
  if (is_culprit && what == "kill") raise(SIGKILL);
  if (is_culprit && what == "throw") throw ShapeError("five is not six");
  if (is_culprit && what == "abort") world.abort("loss is not finite");
  if (is_culprit && what == "leave") return;
  if (what == "late") {
    world.set_timeout(kShort);
    return is_culprit ? sleep(60000) : void();
  }
  reduce(group, "x");
}

}  // namespace
}  // namespace megatron

int main(int, char** argv) {
  using namespace megatron;
  const LaunchEnvironment launch = launch_environment(process_environment());
  const std::string what = argv[1];
  const std::chrono::seconds apart{60};  // ranks may start
  return run_job(launch, {"failing_ranks", apart}, std::cerr, [&](World& world) { run(what, world); });
}
