#include "megatron/dist_checkpointing/metadata_pickle.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/pickle/pickle_reader.h"
#include "megatron/dist_checkpointing/pickle/pickle_writer.h"
#include "megatron/dist_checkpointing/torch_tensor.h"

namespace megatron {
namespace {

using pickle::Object;

constexpr const char* kModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kFileSystemModule = "torch.distributed.checkpoint.filesystem";
constexpr const char* kFormatVersion = "1.0.0";  // as torch 2.11 writes it

using Place = std::pair<std::string, std::vector<int64_t>>;  // key and offset of a chunk; objects have no offset

std::vector<int64_t> values_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

/// Files are named relative to the directory and must stay in it, also when a damaged or hostile index says otherwise.
void require_inside(const std::string& file) {
  bool inside = !file.empty() && !file.starts_with('/') && file.find('\0') == std::string::npos;
  for (size_t begin = 0; begin < file.size(); begin = std::min(file.find('/', begin), file.size()) + 1)
    inside = inside && file.substr(begin, file.find('/', begin) - begin) != "..";
  require<CheckpointError>(inside, "it names the file \"{}\", which is not within its directory", file);
}

std::map<Place, StoredItem> parse_storage(const Object& storage_data) {
  std::map<Place, StoredItem> items;
  for (const auto& [index, info] : storage_data.entries()) {
    require<CheckpointError>(index->is_instance_of(kModule, "MetadataIndex"), "an item has no MetadataIndex");
    Place place{index->at("fqn").as_string(), {}};
    if (const Object* offset = index->find("offset"); offset && !offset->is_none())
      place.second = values_of(torch_size(*offset));
    StoredItem item{info->at("relative_path").as_string(), info->at("offset").as_int(), info->at("length").as_int()};
    require_inside(item.file);
    require<CheckpointError>(item.offset >= 0 && item.bytes >= 0 && item.offset <= INT64_MAX - item.bytes,
                             "{} lies at byte {} and has {} bytes", place.first, item.offset, item.bytes);
    const Object* transforms = info->find("transform_descriptors");
    require<NotSupported>(
        transforms == nullptr || transforms->is_none(),
        "[checkpoint] {} is stored transformed (compressed or encrypted), which is not supported. Save "
        "it without extensions.",
        place.first);
    require<CheckpointError>(items.try_emplace(place, std::move(item)).second, "{} is listed twice", place.first);
  }
  return items;
}

/// The dtype of TensorProperties, whose pickled state is a tuple that begins with it.
ElementType parse_type(const Object& properties) {
  const Object* state = properties.instance().state;
  require<CheckpointError>(state != nullptr, "a tensor has no properties");
  const bool is_tuple = state->kind() == pickle::Kind::kTuple && !state->items().empty();
  const Object& dtype = is_tuple ? *state->items()[0] : properties.at("dtype");
  const auto type = element_type_of_torch(dtype.global_name());
  require<CheckpointError>(dtype.global_module() == "torch" && type, "dtype {} is unknown", dtype.global_name());
  return *type;
}

GlobalTensor parse_tensor(const std::string& key, const Object& described, const std::map<Place, StoredItem>& items) {
  GlobalTensor tensor;
  tensor.type = parse_type(described.at("properties"));
  tensor.shape = torch_size(described.at("size"));
  checked_num_elements(tensor.shape);
  for (const Object* part : described.at("chunks").items()) {
    StoredChunk chunk{{torch_size(part->at("offsets")), torch_size(part->at("sizes"))}, {}};
    require<CheckpointError>(contains(tensor.shape, chunk.box), "{} has a chunk at {} of {} beyond its shape {}", key,
                             chunk.box.offsets, chunk.box.sizes, tensor.shape);
    const auto found = items.find({key, values_of(chunk.box.offsets)});
    require<CheckpointError>(found != items.end(), "nothing says where chunk {} of {} is stored", chunk.box, key);
    chunk.item = found->second;
    tensor.chunks.push_back(std::move(chunk));
  }
  return tensor;
}

CheckpointMetadata parse(const Object& root) {
  require<CheckpointError>(root.is_instance_of(kModule, "Metadata"),
                           "it holds no torch.distributed.checkpoint Metadata");
  const auto items = parse_storage(root.at("storage_data"));
  CheckpointMetadata metadata;
  for (const auto& [name, described] : root.at("state_dict_metadata").entries()) {
    const std::string& key = name->as_string();
    if (described->is_instance_of(kModule, "TensorStorageMetadata")) {
      metadata.tensors[key] = parse_tensor(key, *described, items);
      continue;
    }
    require<CheckpointError>(described->is_instance_of(kModule, "BytesStorageMetadata"), "{} is of an unknown kind",
                             key);
    const auto found = items.find({key, {}});
    require<CheckpointError>(found != items.end(), "nothing says where {} is stored", key);
    metadata.objects[key] = found->second;
  }
  return metadata;
}

/// Builds the graph, sharing names and repeated values as a pickler does.
class Builder {
 public:
  explicit Builder(pickle::Graph& graph) : graph_(graph) {}

  Object& metadata(const CheckpointMetadata& metadata) {
    Object &described = graph_.dict(), &stored = graph_.dict();
    for (const auto& [key, item] : metadata.objects) {
      Object& name = graph_.text(key);
      described.mutable_entries().push_back({&name, &instance(kModule, "BytesStorageMetadata", {})});
      stored.mutable_entries().push_back(
          {&instance(kModule, "MetadataIndex", {{"fqn", &name}, {"index", &graph_.none()}}), &storage_info(item)});
    }
    for (const auto& [key, tensor] : metadata.tensors) add_tensor(graph_.text(key), tensor, described, stored);
    Object& meta = instance(kModule, "StorageMeta",
                            {{"checkpoint_id", &graph_.none()},
                             {"save_id", &graph_.none()},
                             {"load_id", &graph_.none()},
                             {"modules", &graph_.list({})}});
    return instance(kModule, "Metadata",
                    {{"state_dict_metadata", &described},
                     {"planner_data", &graph_.none()},
                     {"storage_data", &stored},
                     {"storage_meta", &meta},
                     {"version", &graph_.text(kFormatVersion)}});
  }

 private:
  using Fields = std::vector<std::pair<const char*, Object*>>;

  Object& shared(std::string_view module, std::string_view name) {
    Object*& object = shared_[{std::string(module), std::string(name)}];
    if (object == nullptr)
      object =
          module.empty() ? &graph_.text(std::string(name)) : &graph_.global(std::string(module), std::string(name));
    return *object;
  }
  Object& instance(std::string_view module, std::string_view name, const Fields& fields) {
    Object* state = fields.empty() ? nullptr : &graph_.dict();
    for (const auto& [field, value] : fields) state->mutable_entries().push_back({&shared("", field), value});
    return graph_.instance(shared(module, name), state);
  }
  Object& size(const Shape& shape) {
    std::vector<Object*> values;
    for (const int64_t value : shape) values.push_back(&graph_.integer(value));
    return graph_.reduce(shared("torch", "Size"), {&graph_.tuple(std::move(values))});
  }
  Object& storage_info(const StoredItem& item) {
    return instance(kFileSystemModule, "_StorageInfo",
                    {{"relative_path", &shared("", item.file)},
                     {"offset", &graph_.integer(item.offset)},
                     {"length", &graph_.integer(item.bytes)}});
  }
  /// (dtype, layout, requires_grad, memory format, pin_memory)
  Object& properties(ElementType type) {
    if (layout_ == nullptr) {
      layout_ = &graph_.reduce(shared("torch.serialization", "_get_layout"), {&graph_.text("torch.strided")});
      contiguous_ = &graph_.reduce(shared(kModule, "_MEM_FORMAT_ENCODING"), {&graph_.integer(0)});
    }
    return graph_.instance(shared(kModule, "TensorProperties"),
                           &graph_.tuple({&shared("torch", info(type).torch), layout_, &graph_.boolean(false),
                                          contiguous_, &graph_.boolean(false)}));
  }
  void add_tensor(Object& name, const GlobalTensor& tensor, Object& described, Object& stored) {
    Object& chunks = graph_.list({});
    for (const StoredChunk& chunk : tensor.chunks) {
      Object& offsets = size(chunk.box.offsets);
      const auto index = static_cast<int64_t>(chunks.items().size());
      chunks.mutable_items().push_back(
          &instance(kModule, "ChunkStorageMetadata", {{"offsets", &offsets}, {"sizes", &size(chunk.box.sizes)}}));
      stored.mutable_entries().push_back(
          {&instance(kModule, "MetadataIndex",
                     {{"fqn", &name}, {"index", &graph_.integer(index)}, {"offset", &offsets}}),
           &storage_info(chunk.item)});
    }
    described.mutable_entries().push_back(
        {&name,
         &instance(kModule, "TensorStorageMetadata",
                   {{"properties", &properties(tensor.type)}, {"size", &size(tensor.shape)}, {"chunks", &chunks}})});
  }

  pickle::Graph& graph_;
  std::map<std::pair<std::string, std::string>, Object*> shared_;
  Object *layout_ = nullptr, *contiguous_ = nullptr;
};

}  // namespace

CheckpointMetadata parse_metadata(std::span<const std::byte> bytes, std::string_view source) {
  const pickle::Pickle pickle = pickle::read_pickle(bytes, source);
  try {
    return parse(*pickle.root);
  } catch (const CheckpointError& error) {
    throw CheckpointError(
        fmt::format("[checkpoint] {} is damaged: {}. Restore it or load another checkpoint.", source, error.what()));
  }
}

std::string write_metadata(const CheckpointMetadata& metadata) {
  pickle::Graph graph;
  return pickle::write_pickle(Builder(graph).metadata(metadata), pickle::Protocol::kFour);
}

}  // namespace megatron
