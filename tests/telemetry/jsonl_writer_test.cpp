#include "megatron/telemetry/jsonl_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <limits>

#include "megatron/base/error.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using Fields = std::vector<JsonField>;

TEST(JsonObjectLine, KeepsOrderTypesAndShortestNumbers) {
  EXPECT_EQ(json_object_line(Fields{{"z", std::int64_t{7}}, {"a", 0.1}, {"ok", true}, {"text", std::string("q\"\n")}}),
            "{\"z\":7,\"a\":0.1,\"ok\":true,\"text\":\"q\\\"\\n\"}\n");
}

TEST(JsonObjectLine, WritesNullForWhatJsonCannotSay) {
  EXPECT_EQ(json_object_line(Fields{{"nan", std::numeric_limits<double>::quiet_NaN()},
                                    {"inf", std::numeric_limits<double>::infinity()},
                                    {"bytes", std::string("\xff")}}),
            "{\"nan\":null,\"inf\":null,\"bytes\":\"\xEF\xBF\xBD\"}\n");
}

TEST(JsonlWriter, ContinuesAFileAndIsReadableAtOnce) {
  const testing::ScratchDirectory scratch;
  PosixFileSystem files;
  const std::string path = scratch.file("new/metrics.jsonl");
  {
    JsonlWriter writer(files, path);
    writer.write(Fields{{"iteration", std::int64_t{1}}});
    EXPECT_EQ(read_file(files, path), "{\"iteration\":1}\n") << "before the writer is closed";
  }
  JsonlWriter(files, path).write(Fields{{"iteration", std::int64_t{2}}});
  EXPECT_EQ(read_file(files, path), "{\"iteration\":1}\n{\"iteration\":2}\n");
}

TEST(JsonlWriter, BeginsALineOfItsOwnBehindOneThatWasCutOff) {
  const testing::ScratchDirectory scratch;
  PosixFileSystem files;
  const std::string path = scratch.file("metrics.jsonl");
  for (const std::string before : {"{\"iterat", "{\"a\":1}\n{", "\n", ""}) {
    std::ofstream(path, std::ios::trunc) << before;
    JsonlWriter(files, path).write(Fields{{"iteration", std::int64_t{2}}});
    const std::string end = before.empty() || before.back() == '\n' ? "" : "\n";
    EXPECT_EQ(read_file(files, path), before + end + "{\"iteration\":2}\n");
  }
}

TEST(JsonlWriter, WaitsForNobodyToWriteToAPipe) {
  const testing::ScratchDirectory scratch;
  PosixFileSystem files;
  const std::string path = scratch.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string link = scratch.file("link");
  std::filesystem::create_symlink("pipe", link);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  for (const std::string& name : {path, link}) {
    JsonlWriter(files, name).write(Fields{{"iteration", std::int64_t{2}}});
    std::array<char, 32> text{};
    EXPECT_EQ(::read(reader, text.data(), text.size()), 16) << name;
  }
  ::close(reader);
}

TEST(JsonlWriter, MendsWhatALinkLeadsTo) {
  const testing::ScratchDirectory scratch;
  PosixFileSystem files;
  const std::string path = scratch.file("link.jsonl"), file = scratch.file("behind.jsonl");
  std::filesystem::create_symlink("behind.jsonl", path);
  JsonlWriter(files, path).write(Fields{{"iteration", std::int64_t{1}}});  // to a file that is not there yet
  std::ofstream(file, std::ios::app) << "{\"iter";
  JsonlWriter(files, path).write(Fields{{"iteration", std::int64_t{2}}});
  EXPECT_EQ(read_file(files, file), "{\"iteration\":1}\n{\"iter\n{\"iteration\":2}\n");
}

TEST(JsonlWriter, RejectsADirectoryItCannotMake) {
  const testing::ScratchDirectory scratch;
  PosixFileSystem files;
  EXPECT_THROW(JsonlWriter(files, "/proc/none/metrics.jsonl"), IoError);
}

TEST(TrainingFields, HaveUnderscoresAndLeaveOutWhatIsAbsent) {
  TrainingLogValues v;
  v.time = WallTime(std::chrono::milliseconds(1500));
  v.iteration = 3;
  v.consumed_samples = 24;
  v.elapsed_ms_per_iteration = 12.5;
  v.global_batch_size = 8;
  v.losses = {{"lm loss", 2.5}};
  v.grad_norm = 0.5;
  EXPECT_EQ(json_object_line(training_fields(v)),
            "{\"event\":\"training\",\"time\":1.5,\"iteration\":3,\"set\":\"train\",\"consumed_samples\":24,\"skipped_"
            "samples\":0,"
            "\"elapsed_ms_per_iteration\":12.5,\"global_batch_size\":8,\"lm_loss\":2.5,\"loss_scale\":1.0,"
            "\"grad_norm\":0.5,\"skipped_iterations\":0,\"nan_iterations\":0}\n");
}

TEST(EvaluationFields, AreNamedAfterTheSetAndTheLoss) {
  const std::vector<NamedValue> losses{{"lm loss", 2.0}};
  const WallTime time(std::chrono::milliseconds(1500));
  const std::string head = "{\"event\":\"evaluation\",\"time\":1.5,\"iteration\":100,\"set\":";
  EXPECT_EQ(json_object_line(evaluation_fields(time, 100, "validation", losses)),
            head + "\"validation\",\"validation_lm_loss\":2.0}\n");
  EXPECT_EQ(json_object_line(evaluation_fields(time, 100, "validation-wiki", losses)),
            head + "\"validation-wiki\",\"validation_wiki_lm_loss\":2.0}\n");
  EXPECT_EQ(json_object_line(evaluation_fields(time, 100, "test", losses)), head + "\"test\",\"test_lm_loss\":2.0}\n");
}

}  // namespace
}  // namespace megatron
