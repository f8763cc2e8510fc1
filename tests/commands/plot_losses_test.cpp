#include "commands/plot_losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "commands/exit_code.h"
#include "tests/telemetry/xml.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

class PlotLosses : public ::testing::Test {
 protected:
  int plot(const std::string& lines) {
    std::ofstream(log_) << lines;
    std::ostringstream out, err;
    const int status = plot_losses_command({"--output", picture_, "--runs", "a=" + log_}, out, err);
    err_ = err.str();
    return status;
  }

  const testing::ScratchDirectory scratch_;
  const std::string log_ = scratch_.file("log.jsonl"), picture_ = scratch_.file("losses.svg");
  std::string err_;
};

TEST_F(PlotLosses, NamesTheFileAndLineOfAValueThatIsNoNumber) {
  EXPECT_EQ(plot("{\"iteration\":1,\"lm_loss\":\"abc\"}\n"), static_cast<int>(ExitCode::kData));
  EXPECT_THAT(err_, HasSubstr("--runs a=" + log_ +
                              ": Line 1: \"lm_loss\" is \"abc\", which is not a number. Give a "
                              "file that --log-jsonl wrote."));
}

TEST_F(PlotLosses, DrawsARunWhoseLossesOverflow) {
  EXPECT_EQ(plot("{\"iteration\":1,\"lm_loss\":4}\n{\"iteration\":2,\"lm_loss\":1e308}\n"
                 "{\"iteration\":3,\"lm_loss\":-1e308}\n"),
            0)
      << err_;
  std::stringstream svg;
  svg << std::ifstream(picture_).rdbuf();
  EXPECT_EQ(testing::xml_mistake(svg.str()), "");
}

}  // namespace
}  // namespace megatron
