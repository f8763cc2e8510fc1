// Shares of a checkpoint that a thread of their own writes.
#include "megatron/dist_checkpointing/background_write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "tests/dist_checkpointing/memory_file_system.h"
#include "tests/testing/gated_file_system.h"

namespace megatron {
namespace {

using testing::GatedFileSystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kNumTensors = 5;

/// Tensors of different sizes, one of them with strides.
class Share {
 public:
  Share(FileSystem& files, const std::string& directory) : writer(files, directory, 3) {
    for (int64_t i = 0; i < kNumTensors; ++i) {
      values_.emplace_back(static_cast<size_t>(100 * (i + 1)));
      std::iota(values_.back().begin(), values_.back().end(), static_cast<float>(1000 * i));
      const Shape shape{i + 1, 50};
      writer.add_tensor(
          fmt::format("tensor{}", i), shape, {0, 0},
          ConstView{values_.back().data(), DType::kFloat32, shape, i == 2 ? Shape{100, 2} : Shape{50, 1}});
    }
    TorchObject object;
    object.root = &object.graph.text("state");
    writer.add_object("common", std::move(object));
  }
  /// Overwrites the tensors, as the next training steps do.
  void change() {
    for (auto& tensor : values_) std::ranges::fill(tensor, -1.0F);
  }

  CheckpointWriter writer;

 private:
  std::vector<std::vector<float>> values_;
};

std::map<std::string, std::string> contents(const FileSystem& files, const std::string& directory) {
  std::map<std::string, std::string> all;
  for (const DirectoryEntry& entry : files.list(directory))
    all[entry.name] = read_file(files, join_path(directory, entry.name));
  return all;
}

TEST(BackgroundWrite, StoresWhatWasStagedWhateverHappensToTheTensorsSince) {
  for (const int num_files : {1, 3}) {
    MemoryFileSystem files;
    files.create_directories("now");
    files.create_directories("later");
    Share now(files, "now"), later(files, "later");
    const CheckpointMetadata expected = now.writer.write(num_files, WriteThreads::kCallerAlone);

    std::vector<std::byte> buffer(static_cast<size_t>(later.writer.tensor_bytes()));
    EXPECT_EQ(later.writer.tensor_bytes(), 4 * 50 * (1 + 2 + 3 + 4 + 5));
    const std::stop_source stop;
    later.writer.stage(buffer, stop.get_token());
    later.change();
    BackgroundWrite write(later.writer, num_files, {}, stop);
    EXPECT_EQ(write.take(), expected);
    EXPECT_TRUE(write.is_over());
    EXPECT_EQ(contents(files, "later"), contents(files, "now")) << num_files;
  }
}

TEST(BackgroundWrite, IsOverWhenItsFilesAreWritten) {
  MemoryFileSystem memory;
  memory.create_directories("d");
  GatedFileSystem files(memory);
  files.close_gate();
  Share share(files, "d");
  std::vector<std::byte> buffer(static_cast<size_t>(share.writer.tensor_bytes()));
  const std::stop_source stop;
  share.writer.stage(buffer, stop.get_token());
  BackgroundWrite write(share.writer, 1, {.niceness = 10, .io_class = 3}, stop);
  files.wait_for_writer();
  EXPECT_FALSE(write.is_over());
  files.open_gate();
  EXPECT_EQ(write.take().tensors.size(), kNumTensors);
  EXPECT_TRUE(write.is_over());
  EXPECT_EQ(write.priority_problem(), "");
}

TEST(BackgroundWrite, HandsItsErrorToTheOneWhoTakes) {
  MemoryFileSystem memory;
  memory.create_directories("d");
  GatedFileSystem files(memory);
  files.fail("d/__3_0.distcp: No space left on device");
  Share share(files, "d");
  std::vector<std::byte> buffer(static_cast<size_t>(share.writer.tensor_bytes()));
  const std::stop_source stop;
  share.writer.stage(buffer, stop.get_token());
  BackgroundWrite write(share.writer, 1, {}, stop);
  EXPECT_THAT([&] { write.take(); }, ThrowsMessage<IoError>(HasSubstr("No space left on device")));
}

TEST(BackgroundWrite, StopsWithinAFileWhenItIsDropped) {
  MemoryFileSystem memory;
  memory.create_directories("d");
  GatedFileSystem files(memory);
  files.close_gate();
  Share share(files, "d");
  std::vector<std::byte> buffer(static_cast<size_t>(share.writer.tensor_bytes()));
  std::stop_source stop;
  share.writer.stage(buffer, stop.get_token());
  {
    BackgroundWrite write(share.writer, 1, {}, stop);
    files.wait_for_writer();
    stop.request_stop();
    files.open_gate();
  }
  EXPECT_LT(read_file(memory, "d/__3_0.distcp").size(), 4 * 50 * 15U);
}

TEST(BackgroundWrite, APriorityThatTheSystemRefusesIsNamed) {
  MemoryFileSystem files;
  files.create_directories("d");
  Share share(files, "d");
  BackgroundWrite write(share.writer, 1, {.niceness = 0, .io_class = 7}, std::stop_source());
  write.take();
  EXPECT_THAT(write.priority_problem(), HasSubstr("I/O class 7 is refused"));
}

}  // namespace
}  // namespace megatron
