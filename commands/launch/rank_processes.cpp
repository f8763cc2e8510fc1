#include "commands/launch/rank_processes.h"

#include <unistd.h>

#include <array>

#include "commands/exit_code.h"
#include "commands/launch/process_starter.h"
#include "megatron/base/error.h"
#include "megatron/comm/rendezvous/store_server.h"

namespace megatron {
namespace {

std::string path_of_this_program() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  require<IoError>(length > 0, "The path of this program cannot be read from /proc/self/exe.");
  return {path.data(), static_cast<size_t>(length)};
}

}  // namespace

int start_ranks(int num_ranks, std::string_view command, const std::vector<std::string>& arguments, std::ostream& err) {
  int status = 0;
  const int own = run_command(command, err, [&] {
    std::vector<std::string> program{path_of_this_program(), std::string(command)};
    program.insert(program.end(), arguments.begin(), arguments.end());
    const StoreServer store(0);
    status = run_processes({program, num_ranks, store.port(), std::to_string(getpid())}, command, err);
  });
  return own != 0 ? own : status;
}

}  // namespace megatron
