#include <cstdlib>
#include <memory>
#include <string>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/metadata_pickle.h"
#include "megatron/dist_checkpointing/pickle/pickle_reader.h"
#include "megatron/dist_checkpointing/safetensors.h"
#include "megatron/dist_checkpointing/torch_file.h"
#include "tests/fuzz/fuzz_targets.h"

namespace megatron::testing {
namespace {

constexpr int64_t kMostBytes = 1 << 20;  // of a tensor that is read: a stride of 0 makes any size of a few bytes

std::unique_ptr<ReadableFile> file_of(std::span<const std::byte> input) {
  return std::make_unique<MemoryFile>(std::string(reinterpret_cast<const char*>(input.data()), input.size()));
}

}  // namespace

void fuzz_safetensors(std::span<const std::byte> input) {
  const SafetensorsFile file(file_of(input), "input");
  for (const auto& [name, tensor] : file.tensors()) file.read(name);
}

void fuzz_pickle(std::span<const std::byte> input) {
  const pickle::Pickle pickled = pickle::read_pickle(input, "input");
  torch_tensor(*pickled.root);
}

void fuzz_torch_file(std::span<const std::byte> input) {
  const TorchFile file(file_of(input), "input");
  const auto read = [&](const pickle::Object& object) {
    const auto tensor = torch_tensor(object);
    if (tensor && tensor->shape.num_elements() <= kMostBytes && tensor->bytes() <= kMostBytes) file.read(*tensor);
  };
  const pickle::Object& root = file.root();
  read(root);
  if (root.kind() == pickle::Kind::kDict)
    for (const pickle::Entry& entry : root.entries()) read(*entry.value);
  file.verify();
}

void fuzz_metadata(std::span<const std::byte> input) {
  const CheckpointMetadata metadata = parse_metadata(input, "input");
  for (const auto& [key, tensor] : metadata.tensors) tensor.tiling_problem();
  const std::string written = write_metadata(metadata);
  if (parse_metadata(std::as_bytes(std::span(written)), "written") != metadata) std::abort();
}

}  // namespace megatron::testing
