// Compares the tensors of two checkpoint folders: names, types, shapes and every byte. Prints the differences.
//
//   compare_checkpoints DIR_A DIR_B      such as run/iter_0000010; exit status 0: the same, 1: not, 2: cannot be read
#include <fmt/core.h>

#include <span>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"

namespace megatron {
namespace {

/// @return number of tensors that differ
int compare(const CheckpointReader& a, const CheckpointReader& b) {
  int num_different = 0;
  const auto differs = [&](const std::string& key, const char* how) {
    fmt::print("{}: {}\n", key, how);
    ++num_different;
  };
  for (const auto& [key, tensor] : b.metadata().tensors)
    if (!a.has_tensor(key)) differs(key, "only in the second");
  for (const auto& [key, tensor] : a.metadata().tensors) {
    const auto other = b.metadata().tensors.find(key);
    if (other == b.metadata().tensors.end())
      differs(key, "only in the first");
    else if (tensor.type != other->second.type || tensor.shape != other->second.shape)
      differs(key, "of another type or shape");
    else if (a.read_whole_tensor(key) != b.read_whole_tensor(key))
      differs(key, "of other values");
  }
  return num_different;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  const std::span arguments(argv, static_cast<size_t>(argc));
  if (arguments.size() != 3) {
    fmt::print(stderr, "usage: compare_checkpoints DIR_A DIR_B\n");
    return 2;
  }
  try {
    const PosixFileSystem files;
    const CheckpointReader a(files, arguments[1], Verify::kChecksums), b(files, arguments[2], Verify::kChecksums);
    const int num_different = compare(a, b);
    fmt::print("{} tensors, {} differ\n", a.metadata().tensors.size(), num_different);
    return num_different == 0 ? 0 : 1;
  } catch (const Error& error) {
    fmt::print(stderr, "compare_checkpoints: {}\n", error.what());
    return 2;
  }
}
