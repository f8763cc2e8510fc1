#include "commands/matmul_choices_folders.h"

#include <filesystem>

namespace megatron {

std::vector<std::string> matmul_choices_folders(const std::string& program) {
  const std::filesystem::path bundle = std::filesystem::path(program).parent_path().parent_path();
  return {bundle / "benchmarks/tuned", bundle.parent_path() / "benchmarks/tuned"};
}

}  // namespace megatron
