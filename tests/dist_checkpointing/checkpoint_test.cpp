#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/dist_checkpointing/metadata_pickle.h"
#include "tests/core/random_boxes.h"
#include "tests/dist_checkpointing/memory_file_system.h"
#include "tests/dist_checkpointing/small_checkpoint.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

ConstView view_of(const std::vector<float>& values, const Shape& shape) {
  return {values.data(), DType::kFloat32, shape, shape.contiguous_strides()};
}
View view_of(std::vector<float>& values, const Shape& shape) {
  return {values.data(), DType::kFloat32, shape, shape.contiguous_strides()};
}
std::vector<float> counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  std::iota(values.begin(), values.end(), 0.f);
  return values;
}

/// Part of a contiguous tensor, without a copy.
ConstView part_of(const std::vector<float>& whole, const Shape& shape, const Box& box) {
  const Shape strides = shape.contiguous_strides();
  return {whole.data() + element_offset(box.offsets, strides), DType::kFloat32, box.sizes, strides};
}

std::vector<float> contiguous(const ConstView& view) {
  const auto bytes = gather(view);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Writes one tensor in chunks that are dealt out to ranks, and the index.
void write_in_chunks(FileSystem& files, const std::string& key, const std::vector<float>& whole, const Shape& shape,
                     const std::vector<Box>& boxes, int num_ranks, int num_files) {
  CheckpointMetadata metadata;
  for (int rank = 0; rank < num_ranks; ++rank) {
    CheckpointWriter writer(files, "", rank);
    for (size_t i = static_cast<size_t>(rank); i < boxes.size(); i += static_cast<size_t>(num_ranks))
      writer.add_tensor(key, shape, boxes[i].offsets, part_of(whole, shape, boxes[i]));
    metadata.merge(writer.write(num_files));
  }
  write_index(files, "", metadata);
}

TEST(Checkpoint, AnyPartIsReadFromAnyChunks) {
  std::mt19937 random(3);
  const Shape shape{6, 9, 11};
  const std::vector<float> whole = counting(shape);
  for (int trial = 0; trial < 200; ++trial) {
    MemoryFileSystem files;
    const auto boxes = random_tiling(Box::whole(shape), trial % 25, random);
    write_in_chunks(files, "w", whole, shape, boxes, 1 + trial % 5, 1 + trial % 3);
    const CheckpointReader reader(files, "", trial % 2 ? Verify::kChecksums : Verify::kNothing);
    for (int read = 0; read < 5; ++read) {
      const Box box = read == 0 ? Box::whole(shape) : random_box(shape, random);
      std::vector<float> part(static_cast<size_t>(box.sizes.num_elements()), -1.f);
      reader.read_tensor("w", shape, box.offsets, view_of(part, box.sizes));
      ASSERT_EQ(part, contiguous(part_of(whole, shape, box))) << box.to_string();
    }
  }
}

TEST(Checkpoint, FlatShardsOfAnOptimizerMakeTheWholeTensor) {
  const Shape shape{7, 13};
  const std::vector<float> whole = counting(shape);
  for (const int num_ranks : {2, 3, 5}) {
    std::vector<Box> boxes;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const int64_t begin = 91 * rank / num_ranks, end = 91 * (rank + 1) / num_ranks;
      for (const Box& box : boxes_of_flat_range(Box::whole(shape), begin, end)) boxes.push_back(box);
    }
    MemoryFileSystem files;
    write_in_chunks(files, "m", whole, shape, boxes, 1, 1);
    std::vector<float> read(whole.size());
    CheckpointReader(files, "", Verify::kChecksums).read_tensor("m", shape, {0, 0}, view_of(read, shape));
    EXPECT_EQ(read, whole);
  }
}

TEST(Checkpoint, ScalarsAndEmptyTensorsRoundTrip) {
  MemoryFileSystem files;
  CheckpointWriter writer(files, "", 0);
  const std::vector<float> one = {3.5f}, none;
  writer.add_tensor("scalar", {}, {}, view_of(one, {}));
  writer.add_tensor("empty", {0, 4}, {0, 0}, view_of(none, {0, 4}));
  write_index(files, "", writer.write(1));
  const CheckpointReader reader(files, "", Verify::kChecksums);
  std::vector<float> read(1);
  reader.read_tensor("scalar", {}, {}, view_of(read, {}));
  EXPECT_EQ(read, one);
  EXPECT_TRUE(reader.read_whole_tensor("empty").empty());
  EXPECT_THAT(reader.verify(), ElementsAre());
}

/// The index cannot tell apart two chunks that begin at the same place, of which one is empty.
TEST(Checkpoint, EmptyPartsOfATensorAreNotStored) {
  CheckpointMetadata metadata;
  MemoryFileSystem files;
  const std::vector<float> values = counting({4}), none;
  for (int rank = 0; rank < 3; ++rank) {
    CheckpointWriter writer(files, "", rank);
    writer.add_tensor("w", {4}, {0}, rank == 1 ? view_of(values, {4}) : view_of(none, {0}));
    writer.add_tensor("empty", {0}, {0}, view_of(none, {0}));
    metadata.merge(writer.write(1));
  }
  EXPECT_EQ(metadata.tensors.at("w").chunks.size(), 1u);
  EXPECT_EQ(metadata.tensors.at("empty").chunks.size(), 1u);
  write_index(files, "", metadata);
  const CheckpointReader reader(files, "", Verify::kChecksums);
  EXPECT_EQ(reader.read_whole_tensor("w").size(), 16u);
  EXPECT_THAT(reader.verify(), ElementsAre());
}

TEST(Checkpoint, ResizedVocabularyKeepsTheCommonRowsAndZeroesTheRest) {
  const Shape stored{10, 3};
  const std::vector<float> whole = counting(stored);
  MemoryFileSystem files;
  write_in_chunks(files, "embedding", whole, stored, {{{0, 0}, {4, 3}}, {{4, 0}, {6, 3}}}, 2, 1);
  const CheckpointReader reader(files, "", Verify::kChecksums);
  std::vector<float> rows(4 * 3, -1.f);
  reader.read_resized_tensor("embedding", {8, 0}, view_of(rows, {4, 3}));
  EXPECT_THAT(rows, ElementsAre(24, 25, 26, 27, 28, 29, 0, 0, 0, 0, 0, 0));
  reader.read_resized_tensor("embedding", {12, 0}, view_of(rows, {4, 3}));
  EXPECT_EQ(rows, std::vector<float>(12, 0.f));
}

/// Hands out a counting sequence and checks how it is asked for.
class CountingSource final : public TensorSource {
 public:
  explicit CountingSource(int64_t bytes) : bytes_(bytes) {}
  int64_t bytes() const override { return bytes_; }
  std::span<const std::byte> read(int64_t begin, int64_t count) override {
    EXPECT_EQ(begin, next_);
    next_ += count;
    piece_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) piece_[static_cast<size_t>(i)] = static_cast<std::byte>((begin + i) * 7 >> 3);
    return piece_;
  }

 private:
  int64_t bytes_, next_ = 0;
  std::vector<std::byte> piece_;
};

TEST(CheckpointWriter, AsksASourceForConsecutivePiecesOnce) {
  constexpr int64_t kBytes = (9 << 20) + 5;
  MemoryFileSystem files;
  CheckpointWriter writer(files, "", 0);
  writer.add_tensor("u8", ElementType::kUInt8, {kBytes}, Box::whole({kBytes}),
                    std::make_unique<CountingSource>(kBytes));
  EXPECT_GE(writer.estimated_bytes(), kBytes);
  write_index(files, "", writer.write(1));
  const auto bytes = CheckpointReader(files, "", Verify::kChecksums).read_whole_tensor("u8");
  ASSERT_EQ(bytes.size(), static_cast<size_t>(kBytes));
  for (int64_t i = 0; i < kBytes; i += 4097)
    ASSERT_EQ(bytes[static_cast<size_t>(i)], static_cast<std::byte>(i * 7 >> 3));
}

TEST(CheckpointWriter, SpreadsTensorsOverFilesBySize) {
  MemoryFileSystem files;
  CheckpointWriter writer(files, "", 3);
  const std::vector<float> values(40'000);
  for (const int64_t size : {100, 40'000, 20'000, 20'000})
    writer.add_tensor(fmt::format("t{}.{}", size, writer.estimated_bytes()), {size}, {0}, view_of(values, {size}));
  const CheckpointMetadata stored = writer.write(2);
  std::map<std::string, int64_t> bytes;
  for (const auto& [key, tensor] : stored.tensors) bytes[tensor.chunks[0].item.file] += tensor.shape.num_elements() * 4;
  EXPECT_EQ(bytes, (std::map<std::string, int64_t>{{"__3_0.distcp", 160'400}, {"__3_1.distcp", 160'000}}));
  write_index(files, "", stored);
  EXPECT_THAT(CheckpointReader(files, "", Verify::kChecksums).verify(), ElementsAre());
}

TEST(CheckpointWriter, WritesNoFileWithoutItems) {
  MemoryFileSystem files;
  const CheckpointMetadata stored = CheckpointWriter(files, "", 0).write(2);
  EXPECT_TRUE(stored.tensors.empty());
  EXPECT_TRUE(files.list("").empty());
  CheckpointWriter one(files, "", 0);
  const std::vector<float> values(1);
  one.add_tensor("x", {1}, {0}, view_of(values, {1}));
  one.write(4);
  EXPECT_EQ(files.list("").size(), 1u);
}

TEST(CheckpointWriter, RefusesAPartOutsideOfItsTensor) {
  MemoryFileSystem files;
  CheckpointWriter writer(files, "", 0);
  const std::vector<float> values(4);
  EXPECT_THAT(
      [&] {
        writer.add_tensor("w", {4, 2}, {3, 0}, view_of(values, {2, 2}));
      },
      ThrowsMessage<ShapeError>("[checkpoint] w of shape [4, 2] has no part of shape [2, 2] at [3, 0]"));
}

TEST(CheckpointMetadata, RanksMustAgreeAndStoreEverythingOnce) {
  const auto with = [](const Shape& shape, ElementType type, const Box& box) {
    CheckpointMetadata metadata;
    metadata.tensors["w"] = {type, shape, {{box, {"__0_0.distcp", 0, 1}}}};
    return metadata;
  };
  const Box left{{0}, {2}}, right{{2}, {2}};
  CheckpointMetadata metadata = with({4}, ElementType::kFloat32, left);
  EXPECT_THROW(metadata.merge(with({5}, ElementType::kFloat32, right)), CheckpointError);
  EXPECT_THROW(metadata.merge(with({4}, ElementType::kFloat64, right)), CheckpointError);
  EXPECT_THAT([&] { metadata.require_complete(); }, ThrowsMessage<CheckpointError>(HasSubstr("2 of 4 elements")));
  metadata.merge(with({4}, ElementType::kFloat32, right));
  EXPECT_NO_THROW(metadata.require_complete());
  metadata.merge(with({4}, ElementType::kFloat32, right));
  EXPECT_THAT([&] { metadata.require_complete(); }, ThrowsMessage<CheckpointError>(HasSubstr("overlap")));
  CheckpointMetadata object;
  object.objects["o"] = {"__0_0.distcp", 0, 1};
  metadata.merge(object);
  EXPECT_THAT([&] { metadata.merge(object); },
              ThrowsMessage<CheckpointError>(HasSubstr("two ranks stored the object o")));
}

TEST(CheckpointReader, SaysWhatDoesNotFit) {
  MemoryFileSystem files;
  write_in_chunks(files, "decoder.a", counting({4}), {4}, {Box::whole({4})}, 1, 1);
  const CheckpointReader reader(files, "", Verify::kChecksums);
  std::vector<float> out(4);
  EXPECT_THAT([&] { reader.read_tensor("decoder.b", {4}, {0}, view_of(out, {4})); },
              ThrowsMessage<CheckpointError>(HasSubstr("has no tensor decoder.b; it has 1, among them decoder.a.")));
  EXPECT_THAT([&] { reader.read_tensor("decoder.a", {5}, {0}, view_of(out, {4})); },
              ThrowsMessage<CheckpointError>(HasSubstr("decoder.a is stored with shape [4], the model has [5]")));
  EXPECT_THROW(reader.read_tensor("decoder.a", {4}, {1}, view_of(out, {4})), ShapeError);
  EXPECT_THAT(
      [&] {
        reader.read_tensor("decoder.a", {4}, {0}, View{out.data(), DType::kBFloat16, {4}, {1}});
      },
      ThrowsMessage<CheckpointError>(HasSubstr("is stored as float32, but bfloat16 is wanted")));
  EXPECT_THROW(reader.read_object("decoder.a"), CheckpointError);
  EXPECT_THAT([&] { CheckpointReader(files, "none", Verify::kNothing); },
              ThrowsMessage<CheckpointError>(HasSubstr("none/.metadata does not exist")));
}

TEST(CheckpointReader, NamesAMissingOrShortFileAndItsKey) {
  MemoryFileSystem files;
  write_in_chunks(files, "w", counting({4}), {4}, {{{0}, {2}}, {{2}, {2}}}, 2, 1);
  const std::string content = read_file(files, "__1_0.distcp");
  replace_file(files, "__1_0.distcp", content.substr(0, content.size() - 1));
  const CheckpointReader reader(files, "", Verify::kChecksums);
  EXPECT_THAT(
      [&] { reader.check_files(); },
      ThrowsMessage<CheckpointError>(HasSubstr("__1_0.distcp is cut short: it has 1576 bytes, w ends at 1577")));
  files.remove("__1_0.distcp");
  EXPECT_THAT([&] { reader.check_files(); }, ThrowsMessage<CheckpointError>(HasSubstr("cannot open __1_0.distcp")));
  EXPECT_EQ(reader.verify().size(), 1u);
}

TEST(CheckpointReader, RefusesFilesOutsideOfTheDirectory) {
  for (const char* file : {"../secret", "/etc/passwd", "a/../../b", "", ".."}) {
    CheckpointMetadata metadata;
    metadata.objects["o"] = {file, 0, 1};
    const std::string bytes = write_metadata(metadata);
    EXPECT_THAT([&] { parse_metadata(std::as_bytes(std::span(bytes)), "x"); },
                ThrowsMessage<CheckpointError>(HasSubstr("not within its directory")))
        << file;
  }
  CheckpointMetadata nested;
  nested.objects["o"] = {"sub/..file/a.distcp", 0, 1};
  const std::string bytes = write_metadata(nested);
  EXPECT_EQ(parse_metadata(std::as_bytes(std::span(bytes)), "x"), nested);
}

/// Every byte of every file of a checkpoint: a flip is found, or hits what means nothing; a cut is always found.
TEST(CheckpointReader, FindsDamageInEveryFile) {
  MemoryFileSystem files;
  CheckpointDirectory directory(files, "save");
  save_small(files, directory, 10, 1);
  const std::string path = directory.path(10);
  ASSERT_TRUE(holds_small(files, path, 1));
  const auto is_error = [](const ::testing::AssertionResult& result) {
    return std::string_view(result.message()).starts_with("[");
  };
  for (const DirectoryEntry& entry : files.list(path)) {
    const std::string file = join_path(path, entry.name), content = read_file(files, file);
    for (size_t at = 0; at < content.size(); ++at) {
      std::string flipped = content;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      replace_file(files, file, flipped);
      const auto flip_result = holds_small(files, path, 1);
      EXPECT_TRUE(flip_result || is_error(flip_result)) << entry.name << " flipped at " << at;
    }
    for (size_t length = 0; length < content.size(); length += 1 + length / 50) {
      replace_file(files, file, content.substr(0, length));
      const auto cut_result = holds_small(files, path, 1);
      EXPECT_TRUE(!cut_result && is_error(cut_result)) << entry.name << " cut at " << length;
    }
    replace_file(files, file, content);
  }
  EXPECT_TRUE(holds_small(files, path, 1));
}

}  // namespace
}  // namespace megatron
