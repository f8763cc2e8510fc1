#include "megatron/telemetry/event_file_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "megatron/telemetry/training_tags.h"
#include "tests/telemetry/event_file_reader.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using testing::Message;
using Values = std::vector<NamedValue>;

const WallTime kStart(std::chrono::milliseconds(1'700'000'000'500));
const EventFileIdentity kIdentity{.host = "node1", .process_id = 42, .serial = 3};

class EventFile : public ::testing::Test {
 protected:
  std::vector<Message> events(const std::string& path) const {
    std::vector<Message> result;
    for (const std::string& record : testing::read_records(read_file(files_, path)))
      result.push_back(Message::parse(record));
    return result;
  }

  testing::ScratchDirectory scratch_;
  PosixFileSystem files_;
};

TEST_F(EventFile, HasANameThatTensorBoardFindsAndBeginsWithItsVersion) {
  const EventFileWriter writer(files_, scratch_.file("run"), kIdentity, kStart);
  EXPECT_EQ(writer.path(), scratch_.file("run/events.out.tfevents.1700000000.node1.42.3"));
  const auto read = events(writer.path());
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].as_double(1), 1'700'000'000.5);
  EXPECT_EQ(read[0].text(3), "brain.Event:2");
  EXPECT_EQ(read[0].message(10).text(1), "megatron.telemetry");
}

TEST_F(EventFile, KeepsTagsStepsAndValues) {
  EventFileWriter writer(files_, scratch_.path(), kIdentity, kStart);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  writer.add_scalars(kStart + std::chrono::seconds(1), 300'000'000'000, Values{{"lm loss", 2.5}, {"bad", nan}});
  const auto read = events(writer.path());
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].as_double(1), 1'700'000'001.5);
  EXPECT_EQ(read[1].find(2)->bits, 300'000'000'000u);
  const auto values = read[1].message(5).messages(1);
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0].text(1), "lm loss");
  EXPECT_EQ(values[0].as_float(2), 2.5f);
  EXPECT_EQ(values[1].text(1), "bad");
  EXPECT_TRUE(std::isnan(values[1].as_float(2)));
}

TEST_F(EventFile, HoldsTextAsAStringTensorForTheTextPlugin) {
  EventFileWriter writer(files_, scratch_.path(), kIdentity, kStart);
  writer.add_text(kStart, 0, "num_layers", "12");
  const Message value = events(writer.path()).at(1).message(5).message(1);
  EXPECT_EQ(value.text(1), "num_layers/text_summary");
  const Message tensor = value.message(8);
  EXPECT_EQ(tensor.find(1)->bits, 7u);
  EXPECT_EQ(tensor.message(2).message(2).find(1)->bits, 1u);
  EXPECT_EQ(tensor.text(8), "12");
  const Message metadata = value.message(9);
  EXPECT_EQ(metadata.message(1).text(1), "text");
  EXPECT_EQ(metadata.find(4)->bits, 2u);
}

TEST_F(EventFile, HasTwinsOverSamples) {
  EventFileWriter writer(files_, scratch_.path(), kIdentity, kStart);
  write_tags(writer, kStart, 10, 320, validation_tags(Values{{"lm loss", 2.0}}, "", false));
  const auto read = events(writer.path());
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[1].find(2)->bits, 10u);
  EXPECT_EQ(read[1].message(5).message(1).text(1), "lm loss validation");
  EXPECT_EQ(read[2].find(2)->bits, 320u);
  EXPECT_EQ(read[2].message(5).message(1).text(1), "lm loss validation vs samples");
}

TEST_F(EventFile, HasNoEventForNoValues) {
  EventFileWriter writer(files_, scratch_.path(), kIdentity, kStart);
  writer.add_scalars(kStart, 1, Values{});
  EXPECT_EQ(events(writer.path()).size(), 1u);
}

}  // namespace
}  // namespace megatron
