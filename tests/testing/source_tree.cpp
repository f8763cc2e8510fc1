#include "tests/testing/source_tree.h"

#include <cstdlib>

namespace megatron::testing {

std::string source_path(std::string_view relative) {
  const std::string root = MEGATRON_SOURCE_DIR;
  return relative.empty() ? root : root + "/" + std::string(relative);
}

std::string golden_path(std::string_view relative) {
  const char* given = std::getenv("MEGATRON_GOLDEN_DIR");
  const std::string root = given != nullptr ? std::string(given) : source_path("tests/golden");
  return relative.empty() ? root : root + "/" + std::string(relative);
}

}  // namespace megatron::testing
