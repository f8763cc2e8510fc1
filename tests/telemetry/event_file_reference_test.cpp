// TensorBoard's own reader reads what we wrote. Needs a Python with the tensorboard package, named by the environment
// variable MEGATRON_REFERENCE_PYTHON.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "megatron/telemetry/event_file_writer.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

/// Standard output of a shell command.
std::string output_of(const std::string& command) {
  std::string output;
  std::FILE* pipe = popen(command.c_str(), "r");
  for (int c; (c = std::fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

TEST(EventFileReference, IsReadByTensorBoard) {
  const char* python = std::getenv("MEGATRON_REFERENCE_PYTHON");
  if (!python) GTEST_SKIP() << "Set MEGATRON_REFERENCE_PYTHON to a Python that has the tensorboard package.";
  const testing::ScratchDirectory scratch;
  PosixFileSystem files;
  const WallTime now(std::chrono::seconds(1'700'000'000));
  {
    EventFileWriter writer(files, scratch.path(), {.host = "node1", .process_id = 42, .serial = 0}, now);
    writer.add_text(now, 0, "num_layers", "12");
    writer.add_scalars(now, 1, std::vector<NamedValue>{{"lm loss", 2.5}, {"grad-norm", 0.5}});
    writer.add_scalars(now, 64, std::vector<NamedValue>{{"lm loss vs samples", 2.5}});
    writer.add_scalars(now, 2, std::vector<NamedValue>{{"lm loss", 2.25}, {"grad-norm", 0.25}});
  }
  const std::string command =
      std::string(python) + " " + testing::source_path("tests/telemetry/read_events.py ") + scratch.path();
  EXPECT_EQ(output_of(command),
            "grad-norm 1 0.5\ngrad-norm 2 0.25\nlm loss 1 2.5\nlm loss 2 2.25\nlm loss vs samples 64 2.5\n"
            "num_layers/text_summary 0 12\n");
}

}  // namespace
}  // namespace megatron
