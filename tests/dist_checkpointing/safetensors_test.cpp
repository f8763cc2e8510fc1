#include "megatron/dist_checkpointing/safetensors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "tests/dist_checkpointing/memory_file_system.h"
#include "tests/dist_checkpointing/tagged_json.h"

namespace megatron {
namespace {

SafetensorsFile open(std::string bytes) {
  return SafetensorsFile(std::make_unique<MemoryFile>(std::move(bytes)), "test.safetensors");
}

std::string hex(const std::vector<std::byte>& bytes) {
  std::string digits;
  for (const std::byte byte : bytes) digits += fmt::format("{:02x}", std::to_integer<int>(byte));
  return digits;
}

TEST(Safetensors, AcceptsAndRefusesWhatTheFormatsLibraryDoes) {
  const nlohmann::json verdicts = read_golden_json("safetensors/verdicts.json");
  int num_accepted = 0, num_refused = 0;
  for (const auto& verdict : verdicts["files"]) {
    const std::string name = verdict["file"];
    const std::string bytes = read_golden("safetensors/" + name);
    if (verdict["deserialize"] == "reject") {
      EXPECT_THROW(open(bytes), CheckpointError) << name;
      ++num_refused;
      continue;
    }
    const SafetensorsFile file = open(bytes);
    ASSERT_EQ(file.tensors().size(), verdict["tensors"].size()) << name;
    for (const auto& expected : verdict["tensors"]) {
      const auto& tensor = file.tensor(expected["name"].get<std::string>());
      EXPECT_EQ(info(tensor.type).safetensors, expected["dtype"].get<std::string>()) << name;
      EXPECT_EQ(std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end()), expected["shape"]) << name;
      EXPECT_EQ(hex(file.read(expected["name"].get<std::string>())), expected["data"].get<std::string>()) << name;
    }
    if (verdict["metadata"].is_object()) {
      EXPECT_EQ(nlohmann::json(file.metadata()), verdict["metadata"]) << name;
    }
    ++num_accepted;
  }
  EXPECT_EQ(num_accepted, 44);
  EXPECT_EQ(num_refused, 47);
}

TEST(Safetensors, SurvivesEveryTruncationAndEveryFlipOfTheHeader) {
  const std::string bytes = read_golden("safetensors/written_by_library.safetensors");
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(open(bytes.substr(0, length)), CheckpointError) << length;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (const int bit : {0, 3, 5, 7}) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      try {
        open(flipped);
      } catch (const Error&) {
      }
    }
}

TEST(Safetensors, WritesTheLibrarysBytes) {
  const std::string expected = read_golden("safetensors/written_by_library.safetensors");
  const SafetensorsFile file = open(expected);
  std::vector<SafetensorsItem> items;
  for (const auto& [name, tensor] : file.tensors())
    items.push_back({name, tensor.type, tensor.shape, make_owned_source(file.read(name))});
  MemoryFileSystem files;
  const auto out = files.open_for_writing("out", WriteMode::kTruncate);
  write_safetensors(*out, std::move(items), {file.metadata().begin(), file.metadata().end()});
  EXPECT_TRUE(same_bytes(read_file(files, "out"), expected));
}

TEST(Safetensors, ReadsAPartOfATensor) {
  const SafetensorsFile file = open(read_golden("expected/lm019_llama_1.safetensors"));
  const auto& tensor = file.tensor("decoder.layers.mlp.linear_fc2.weight");
  const int64_t num_rows = tensor.shape[1], num_columns = tensor.shape[2];
  ASSERT_GE(num_rows, 23);
  ASSERT_GE(num_columns, 17);
  const auto whole = file.read("decoder.layers.mlp.linear_fc2.weight");
  const Box box{{1, 3, 10}, {1, 20, 7}};
  std::vector<std::byte> part(static_cast<size_t>(box.sizes.num_elements() * size_of(tensor.type)));
  file.read_box("decoder.layers.mlp.linear_fc2.weight", box, part.data(), box.sizes.contiguous_strides());
  for (int64_t row = 0; row < 20; ++row) {
    const auto* from = whole.data() + ((num_rows + 3 + row) * num_columns + 10) * 2;
    EXPECT_TRUE(std::equal(from, from + 14, part.data() + row * 14)) << row;
  }
  EXPECT_THROW(file.read_box("decoder.layers.mlp.linear_fc2.weight", {{0, 0, num_columns - 5}, {1, 1, 6}}, part.data(),
                             {6, 6, 1}),
               ShapeError);
}

TEST(Safetensors, RefusesWhatTheFormatDoesNotKnow) {
  MemoryFileSystem files;
  const auto out = files.open_for_writing("out", WriteMode::kTruncate);
  const auto write = [&](ElementType type, size_t bytes) {
    std::vector<SafetensorsItem> items;
    items.push_back({"x", type, {1}, make_owned_source(std::vector<std::byte>(bytes))});
    write_safetensors(*out, std::move(items), {});
  };
  EXPECT_THROW(write(ElementType::kComplex128, 16), NotSupported);
  EXPECT_THROW(write(ElementType::kFloat32, 3), ShapeError);
}

}  // namespace
}  // namespace megatron
