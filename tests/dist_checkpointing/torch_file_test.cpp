#include "megatron/dist_checkpointing/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "megatron/base/error.h"
#include "tests/dist_checkpointing/memory_file_system.h"
#include "tests/dist_checkpointing/tagged_json.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TorchFile open_torch_file(std::string bytes) {
  return TorchFile(std::make_unique<MemoryFile>(std::move(bytes)), "test.pt");
}

std::string written(const TorchObject& object, std::string_view folder) {
  MemoryFileSystem files;
  const auto file = files.open_for_writing("x", WriteMode::kTruncate);
  const int64_t bytes = write_torch_file(*file, object, folder);
  file->close();
  std::string content = read_file(files, "x");
  EXPECT_EQ(bytes, static_cast<int64_t>(content.size()));
  return content;
}

/// The object and all storages of a file, to be written again.
TorchObject copy_of(std::string bytes) {
  TorchFile file = open_torch_file(std::move(bytes));
  TorchObject copy;
  for (int i = 0; file.has_storage(std::to_string(i)); ++i)
    copy.add_storage(make_owned_source(file.read_storage(std::to_string(i))));
  pickle::Pickle object = file.take_object();
  copy.graph = std::move(object.graph);
  copy.root = object.root;
  return copy;
}

TEST(TorchFile, ReadsWhatTorchSaved) {
  for (const char* name :
       {"tensors", "views", "parameter", "plain", "namespace", "numpy", "generator_state", "bytesio", "list_of_one"}) {
    const TorchFile file = open_torch_file(read_golden(fmt::format("torch_save/{}.pt", name)));
    EXPECT_TRUE(matches(file.root(), read_golden_json(fmt::format("torch_save/{}.json", name)), &file)) << name;
  }
  for (const int protocol : {2, 3, 4, 5}) {
    const TorchFile file = open_torch_file(read_golden(fmt::format("torch_save/plain_protocol{}.pt", protocol)));
    EXPECT_TRUE(matches(file.root(), read_golden_json("torch_save/plain.json"), &file)) << "protocol " << protocol;
  }
  const TorchFile stream = open_torch_file(read_golden("torch_save/views_from_stream.pt"));
  EXPECT_TRUE(matches(stream.root(), read_golden_json("torch_save/views.json"), &stream));
}

TEST(TorchFile, ReadsMegatronsLegacyCheckpoint) {
  const nlohmann::json contents = read_golden_json("lm019/legacy_1/contents.json");
  for (const auto& [path, expected] : contents.items()) {
    const TorchFile file = open_torch_file(read_golden("lm019/legacy_1/" + path));
    EXPECT_TRUE(matches(file.root(), expected, &file)) << path;
  }
}

TEST(TorchFile, NamesTheContainerThatItCannotRead) {
  EXPECT_THAT([] { open_torch_file(read_golden("torch_save/tensors_legacy_container.pt")); },
              ThrowsMessage<CheckpointError>(HasSubstr("does not end like a zip archive")));
}

TEST(TorchFile, ReadsBoxesOfATensorIntoStridedMemory) {
  constexpr int64_t kRows = 50, kColumns = 40;
  std::vector<float> values(kRows * kColumns);
  std::iota(values.begin(), values.end(), 0.f);
  TorchObject object;
  object.root = &object.add_tensor(ConstView{values.data(), DType::kFloat32, {kRows, kColumns}, {kColumns, 1}});
  const TorchFile file = open_torch_file(written(object, "archive"));
  const auto tensor = torch_tensor(file.root());
  ASSERT_TRUE(tensor.has_value());
  for (const Box& box :
       {Box{{0, 0}, {kRows, kColumns}}, Box{{3, 5}, {7, 11}}, Box{{49, 39}, {1, 1}}, Box{{10, 0}, {20, kColumns}}}) {
    for (const bool verify : {true, false}) {
      std::vector<float> out(static_cast<size_t>(2 * box.sizes.num_elements()), -1.f);
      file.read_box(*tensor, box, reinterpret_cast<std::byte*>(out.data()), {2 * box.sizes[1], 2}, verify);
      for (int64_t row = 0; row < box.sizes[0]; ++row)
        for (int64_t column = 0; column < box.sizes[1]; ++column) {
          const auto at = static_cast<size_t>(2 * (row * box.sizes[1] + column));
          ASSERT_EQ(out[at], values[static_cast<size_t>((box.offsets[0] + row) * kColumns + box.offsets[1] + column)]);
          ASSERT_EQ(out[at + 1], -1.f);
        }
    }
  }
}

/// Larger than the pieces in which files are read, so that runs begin and end within pieces.
TEST(TorchFile, ReadsBoxesAcrossPieces) {
  const Shape shape{1024, 3, 1024};  // 12 MiB
  std::vector<int32_t> values(static_cast<size_t>(shape.num_elements()));
  std::iota(values.begin(), values.end(), 0);
  TorchObject object;
  object.root = &object.add_tensor(element_type_of(DType::kInt32), shape,
                                   make_view_source({values.data(), DType::kInt32, shape, shape.contiguous_strides()}));
  const TorchFile file = open_torch_file(written(object, "archive"));
  const auto tensor = torch_tensor(file.root());
  for (const Box& box : {Box::whole(shape), Box{{5, 0, 0}, {1018, 3, 1024}}, Box{{0, 2, 0}, {1024, 1, 1024}},
                         Box{{1, 1, 1000}, {1023, 2, 24}}, Box{{1023, 2, 1023}, {1, 1, 1}}}) {
    for (const bool verify : {true, false}) {
      std::vector<int32_t> out(static_cast<size_t>(box.sizes.num_elements()));
      file.read_box(*tensor, box, reinterpret_cast<std::byte*>(out.data()), box.sizes.contiguous_strides(), verify);
      const int64_t first = element_offset(box.offsets, shape.contiguous_strides());
      for_each_run(box.sizes, box.sizes.contiguous_strides(), shape.contiguous_strides(),
                   [&](int64_t a, int64_t b, int64_t count) {
                     for (int64_t i = 0; i < count; ++i) ASSERT_EQ(out[static_cast<size_t>(a + i)], first + b + i);
                   });
    }
  }
}

TEST(TorchFile, FindsEveryFlippedByteOfAStorage) {
  const std::string bytes = read_golden("torch_save/list_of_one.pt");
  const MemoryFile memory(bytes);
  const ZipReader zip(memory, "test.pt");
  const ZipEntry& storage = *zip.find("list_of_one/data/0");
  for (int64_t i = 0; i < storage.bytes; ++i) {
    std::string flipped = bytes;
    flipped[static_cast<size_t>(zip.payload_offset(storage) + i)] ^= 4;
    const TorchFile file = open_torch_file(flipped);
    const auto tensor = torch_tensor(file.root().items()[0]->at("a"));
    EXPECT_THAT([&] { file.read(*tensor); },
                ThrowsMessage<CheckpointError>(HasSubstr("list_of_one/data/0 has checksum")));
  }
}

/// A flip may hit what nobody reads (padding, sizes that the directory repeats); then the contents are unchanged.
TEST(TorchFile, SurvivesEveryTruncationAndEveryFlip) {
  const std::string bytes = read_golden("torch_save/list_of_one.pt");
  const nlohmann::json expected = read_golden_json("torch_save/list_of_one.json");
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(open_torch_file(bytes.substr(0, length)), CheckpointError) << length;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (const int bit : {0, 3, 7}) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      try {
        const TorchFile file = open_torch_file(flipped);
        EXPECT_TRUE(matches(file.root(), expected, &file)) << "flip at " << at;
      } catch (const Error&) {
      }
    }
}

TEST(TorchFile, RefusesTensorsBeyondTheirStorage) {
  const auto tensor_of = [](std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t offset,
                            int64_t capacity) {
    pickle::Graph graph;
    const auto sizes = [&](const std::vector<int64_t>& values) {
      std::vector<pickle::Object*> items;
      for (const int64_t value : values) items.push_back(&graph.integer(value));
      return &graph.tuple(items);
    };
    auto& id = graph.tuple({&graph.text("storage"), &graph.global("torch", "FloatStorage"), &graph.text("0"),
                            &graph.text("cpu"), &graph.integer(capacity)});
    torch_tensor(graph.reduce(graph.global("torch._utils", "_rebuild_tensor_v2"),
                              {&graph.persistent(id), &graph.integer(offset), sizes(shape), sizes(strides),
                               &graph.boolean(false), &graph.none()}));
  };
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_NO_THROW(tensor_of({2, 3}, {3, 1}, 0, 6));
  EXPECT_THROW(tensor_of({2, 3}, {3, 1}, 1, 6), CheckpointError);
  EXPECT_THROW(tensor_of({2, 3}, {3, 1}, -1, 6), CheckpointError);
  EXPECT_THROW(tensor_of({2, 3}, {4, 1}, 0, 6), CheckpointError);
  EXPECT_THROW(tensor_of({2, -3}, {3, 1}, 0, 6), CheckpointError);
  EXPECT_THROW(tensor_of({2, 3}, {3, -1}, 0, 6), CheckpointError);
  EXPECT_THROW(tensor_of({kHuge, 16}, {1, 1}, 0, 6), CheckpointError);
  EXPECT_THROW(tensor_of({3, 3}, {kHuge, kHuge}, 0, 6), CheckpointError);
  EXPECT_THROW(tensor_of({2}, {1}, kHuge, kHuge), CheckpointError);
  EXPECT_THROW(tensor_of({1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}, 0, 6), CheckpointError);
}

TEST(WriteTorchFile, GivesTorchsBytes) {
  for (const char* name :
       {"tensors", "views", "parameter", "namespace", "numpy", "generator_state", "bytesio", "list_of_one", "plain"}) {
    const std::string bytes = read_golden(fmt::format("torch_save/{}.pt", name));
    EXPECT_TRUE(same_bytes(written(copy_of(bytes), name), bytes)) << name;
  }
}

TEST(WriteTorchFile, MakesTensorsAsTorchDoes) {
  const std::string bytes = read_golden("torch_save/list_of_one.pt");
  const int64_t values[] = {0, 1, 2};
  TorchObject object;
  pickle::Object& dict = object.graph.dict();
  object.graph.set(dict, "a", object.add_tensor(ConstView{values, DType::kInt64, {3}, {1}}));
  object.root = &object.graph.list({&dict});
  EXPECT_TRUE(same_bytes(written(object, "list_of_one"), bytes));
}

TEST(WriteTorchFile, RoundTripsEveryElementType) {
  for (int i = 0; i <= static_cast<int>(ElementType::kComplex128); ++i) {
    const auto type = static_cast<ElementType>(i);
    if (info(type).torch.empty()) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(6 * size_of(type)));
    for (size_t at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(at * 7);
    TorchObject object;
    object.root = &object.add_tensor(type, {2, 3}, make_owned_source(bytes));
    const TorchFile file = open_torch_file(written(object, "archive"));
    const auto tensor = torch_tensor(file.root());
    ASSERT_TRUE(tensor.has_value());
    EXPECT_EQ(tensor->type, type);
    EXPECT_EQ(tensor->shape, (Shape{2, 3}));
    EXPECT_EQ(file.read(*tensor), bytes);
  }
}

TEST(WriteTorchFile, RefusesASourceOfAnotherSize) {
  TorchObject object;
  EXPECT_THROW(object.add_tensor(ElementType::kFloat32, {2}, make_owned_source(std::vector<std::byte>(7))), ShapeError);
}

}  // namespace
}  // namespace megatron
