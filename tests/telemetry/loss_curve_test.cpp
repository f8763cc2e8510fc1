#include "megatron/telemetry/loss_curve.h"

#include <gtest/gtest.h>

#include <cmath>

#include "megatron/base/error.h"
#include "tests/telemetry/xml.h"

namespace megatron {
namespace {

using testing::count;
using testing::xml_mistake;

/// The commands of the first path of a class.
std::string path_of(const std::string& svg, const std::string& css_class) {
  const auto begin = svg.find("d=\"", svg.find("class=\"" + css_class));
  return svg.substr(begin, svg.find("/>", begin) - begin);
}

TEST(LossCurve, SmoothsLongRunsAndNamesTheBestValidation) {
  LossCurve curve;
  for (int i = 1; i <= 300; ++i) curve.add_training(i, 4.0 / std::sqrt(i));
  curve.add_validation(100, 2.0);
  curve.add_validation(200, 1.5);
  curve.add_validation(300, 1.75);
  const std::string svg = curve.svg("demo", AxisScale::kLinear);
  EXPECT_EQ(xml_mistake(svg), "");
  EXPECT_EQ(count(svg, "class=\"faint s0\""), 1);
  EXPECT_EQ(count(svg, "best validation loss 1.5000 at iteration 200"), 1);
}

TEST(LossCurve, IsReadBackFromMetricsWithTheLaterValueAfterARestart) {
  const LossCurve curve = parse_loss_curve(
      "{\"iteration\":1,\"lm_loss\":4.0}\n{\"iteration\":2,\"lm_loss\":3.0}\n"
      "{\"iteration\":2,\"validation_lm_loss\":3.5}\n{\"iteration\":2,\"lm_loss\":2.0}\n"
      "{\"iteration\":3,\"lm_loss\":null}\n{\"iteration\":4,\"lm");
  EXPECT_EQ(curve.training().size(), 3u);
  EXPECT_EQ(curve.training().at(2), 2.0);
  EXPECT_TRUE(std::isnan(curve.training().at(3)));
  EXPECT_EQ(curve.validation().at(2), 3.5);
}

TEST(LossCurve, RejectsDamageWithinTheMetrics) {
  EXPECT_THROW(parse_loss_curve("{\"iteration\":1}\ngarbage\n{\"iteration\":2}\n"), DataError);
}

TEST(LossCurve, RejectsValuesThatAreNoNumbersWithTheirLine) {
  const auto message_of = [](const std::string& lines) -> std::string {
    try {
      parse_loss_curve(lines);
      return "was read";
    } catch (const DataError& error) {
      return error.what();
    }
  };
  const std::string first = "{\"iteration\":1,\"lm_loss\":4.0}\n";
  EXPECT_EQ(message_of(first + "{\"iteration\":2,\"lm_loss\":\"abc\"}\n"),
            "Line 2: \"lm_loss\" is \"abc\", which is not a number.");
  EXPECT_EQ(message_of(first + "{\"iteration\":\"x\",\"lm_loss\":1}\n"),
            "Line 2: \"iteration\" is \"x\", which is not an integer.");
  EXPECT_EQ(message_of("{\"iteration\":1,\"validation_lm_loss\":[]}\n"),
            "Line 1: \"validation_lm_loss\" is [], which is not a number.");
}

TEST(LossCurve, LeavesOutLossesThatAreTooLargeForAPicture) {
  for (const int num_points : {4, 300}) {  // some are smoothed, others not
    LossCurve curve, without;
    for (int i = 1; i <= num_points; ++i) {
      curve.add_training(i, i == 2 ? 1e308 : i == 3 ? -1e308 : 4.0 / i);
      without.add_training(i, i == 2 || i == 3 ? std::nan("") : 4.0 / i);
    }
    const std::string svg = curve.svg("demo", AxisScale::kLinear);
    EXPECT_EQ(xml_mistake(svg), "");
    EXPECT_EQ(svg, without.svg("demo", AxisScale::kLinear));
  }
}

TEST(LossCurve, SmoothingFollowsASlopeWithoutDelay) {
  LossCurve curve;
  for (int i = 1; i <= 300; ++i) curve.add_training(i, 10.0 - 0.01 * i);
  const std::string svg = curve.svg("demo", AxisScale::kLinear);
  EXPECT_EQ(path_of(svg, "line s0"), path_of(svg, "faint s0"));
}

}  // namespace
}  // namespace megatron
