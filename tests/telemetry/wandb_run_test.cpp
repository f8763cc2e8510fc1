#include "megatron/telemetry/wandb_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <limits>

#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// The records of a file, as the client's reader puts them together: wandb/sdk/internal/datastore.py.
std::vector<std::string> records_of(const std::string& file) {
  EXPECT_EQ(file.substr(0, 7), std::string("\x3aW&B\xe1\xbe\x00", 7));
  std::vector<std::string> records;
  std::string pending;
  bool is_complete = true;
  for (size_t at = 7; at < file.size();) {
    const size_t room = 32768 - at % 32768;
    if (room < 7) {
      EXPECT_EQ(file.substr(at, room), std::string(room, '\0'));
      at += room;
      continue;
    }
    const size_t length = little_endian(file.substr(at + 4, 2));
    const char type = file.at(at + 6);
    EXPECT_LE(7 + length, room) << "a fragment ends with its block";
    const std::string data = file.substr(at + 7, length), checked = type + data;
    EXPECT_EQ(little_endian(file.substr(at, 4)),
              crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())));
    EXPECT_EQ(is_complete, type == 1 || type == 2) << "full or first";
    is_complete = type == 1 || type == 4;
    pending += data;
    if (is_complete) records.push_back(std::exchange(pending, ""));
    at += 7 + length;
  }
  return records;
}

class WandbFile : public ::testing::Test {
 protected:
  WandbRunOptions options() const {
    return {.directory = scratch_.path(),
            .project = "a project",
            .name = "a name",
            .entity = "",
            .host = "a host",
            .process_id = 7,
            .start = WallTime(std::chrono::seconds(1'800'000'000))};
  }
  static WallTime at(int seconds) { return WallTime(std::chrono::seconds(1'800'000'000 + seconds)); }
  std::vector<std::string> records(const std::string& path) { return records_of(read_file(files_, path)); }

  testing::ScratchDirectory scratch_;
  PosixFileSystem files_;
};

TEST_F(WandbFile, HasARowForEachStep) {
  std::string path;
  {
    WandbRun run(files_, options(), {{"lr", "0.1"}});
    path = run.path();
    for (int step = 1; step <= 3; ++step) {
      run.log(at(step), step, std::vector<NamedValue>{{"lm loss", 1.0 / step}});
      run.log(at(step), step, std::vector<NamedValue>{{"grad-norm", std::numeric_limits<double>::quiet_NaN()}});
    }
  }
  const std::vector<std::string> all = records(path);
  ASSERT_EQ(all.size(), 2u + 3u + 2u);  // version and run, rows, summary and exit
  EXPECT_THAT(all[1], HasSubstr("a project"));
  EXPECT_THAT(all[1], HasSubstr("\"0.1\""));
  EXPECT_THAT(all[3], HasSubstr("lm loss"));
  EXPECT_THAT(all[3], HasSubstr("0.5"));
  EXPECT_THAT(all[3], HasSubstr("\"NaN\""));
  EXPECT_THAT(all[3], HasSubstr("_step"));
  EXPECT_THAT(all[5], HasSubstr("0.3333333333333333"));
  EXPECT_THAT(all[5], Not(HasSubstr("0.5")));
}

TEST_F(WandbFile, CutsRecordsAtTheEndsOfBlocks) {
  for (size_t size = 32768 - 200; size < 32768 + 200; ++size) {
    std::string path;
    {
      WandbRun run(files_, options(), {{"long", std::string(size, 'x')}});
      path = run.path();
      run.log(at(1), 1, std::vector<NamedValue>{{"lm loss", 1}});
    }
    ASSERT_EQ(records(path).size(), 5u) << size;
  }
}

}  // namespace
}  // namespace megatron
