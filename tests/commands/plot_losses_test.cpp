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
  int plot(const std::string& lines, const std::vector<std::string>& more = {}) {
    std::ofstream(log_) << lines;
    std::ostringstream out, err;
    std::vector<std::string> words{"--output", picture_, "--runs", "a=" + log_};
    words.insert(words.end(), more.begin(), more.end());
    const int status = plot_losses_command(words, out, err);
    out_ = out.str();
    err_ = err.str();
    return status;
  }

  const testing::ScratchDirectory scratch_;
  const std::string log_ = scratch_.file("log.jsonl"), picture_ = scratch_.file("losses.svg");
  std::string out_, err_;
};

TEST_F(PlotLosses, NamesTheFileAndLineOfAValueThatIsNoNumber) {
  EXPECT_EQ(plot("{\"iteration\":1,\"lm_loss\":\"abc\"}\n"), static_cast<int>(ExitCode::kData));
  EXPECT_THAT(err_, HasSubstr("--runs a=" + log_ +
                              ": Line 1: \"lm_loss\" is \"abc\", which is not a number. Give a "
                              "file that --log-jsonl wrote."));
}

TEST_F(PlotLosses, DrawsAnyNumbersOfTheLines) {
  const std::string lines =
      "{\"iteration\":1,\"lm_loss\":4,\"moe/max\":2.5}\n{\"iteration\":2,\"lm_loss\":3,\"moe/max\":1.5}\n";
  EXPECT_EQ(plot(lines, {"--values", "moe/max", "lm_loss", "--y-label", "load"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("moe/max: 2 values, the last 1.500000"));
  EXPECT_THAT(out_, HasSubstr("lm_loss: 2 values, the last 3.000000"));
  std::stringstream svg;
  svg << std::ifstream(picture_).rdbuf();
  for (const char* text : {">moe/max<", ">lm_loss<", ">load<"}) EXPECT_THAT(svg.str(), HasSubstr(text));
  EXPECT_EQ(plot(lines, {"--values", "moe/min"}), static_cast<int>(ExitCode::kData));
  EXPECT_THAT(err_, HasSubstr("--runs a: the file has no moe/min."));
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
