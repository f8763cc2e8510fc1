#include "megatron/dist_checkpointing/legacy_assembly.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/megatron_names.h"

namespace megatron {
namespace {

using pickle::Object;

constexpr const char* kRemedy =
    "Load the weights alone with --no-load-optim, or let Megatron convert the checkpoint (--ckpt-convert-format "
    "torch_dist).";
constexpr std::string_view kOutputLayer = "output_layer.weight", kWordEmbeddings = "embedding.word_embeddings.weight";

const Object* value_of(const Object& arguments, std::string_view name) {
  const Object* value = arguments.find(name);
  return value && !value->is_none() ? value : nullptr;
}
int64_t count_in(const Object& arguments, std::string_view name) {
  const Object* value = value_of(arguments, name);
  return value ? value->as_int() : 1;
}
bool flag_in(const Object& arguments, std::string_view name) {
  const Object* value = value_of(arguments, name);
  return value && value->as_bool();
}

/// Layers of all kinds that are alike are stored as one tensor: all have experts, or none.
bool has_equal_layers(const Object& arguments) {
  if (!value_of(arguments, "num_experts")) return true;
  const Object* frequency = value_of(arguments, "moe_layer_freq");
  return !frequency || (frequency->kind() == pickle::Kind::kInt && frequency->as_int() == 1);
}

/// Megatron's size of buckets where gradients are reduced while others are computed; otherwise there is one bucket.
std::optional<int64_t> bucket_limit_of(const Object& arguments) {
  constexpr int64_t kLeast = 40'000'000, kPerRank = 1'000'000;
  if (!flag_in(arguments, "overlap_grad_reduce")) return std::nullopt;
  if (const Object* given = value_of(arguments, "ddp_bucket_size")) return given->as_int();
  return std::max(kLeast,
                  kPerRank * count_in(arguments, "data_parallel_size") * count_in(arguments, "context_parallel_size"));
}

Shape concatenated(const std::vector<int64_t>& leading, const Shape& shape) {
  std::vector<int64_t> sizes = leading;
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return Shape(std::span<const int64_t>(sizes));
}

bool has_16_bits(ElementType type) { return size_of(type) == 2; }

}  // namespace

bool is_in_param_group(const Object& group, std::string_view name, const Shape& shape, bool is_expert) {
  const auto is_set = [&](std::string_view flag) {
    const Object* value = group.find(flag);
    return value && !value->is_none() && value->as_bool();
  };
  const Object* factor = group.find("wd_mult");
  const bool decays = !factor || factor->as_float() != 0;
  const bool should_decay = shape.rank() > 1 && !name.ends_with(".bias");
  const bool is_decoupled = name == kOutputLayer || name.starts_with("embedding.");
  return decays == should_decay && is_set("is_expert_parallel") == is_expert &&
         (!is_set("is_decoupled_lr") || is_decoupled);
}

LegacyAssembly::LegacyAssembly(const FileSystem& files, std::string directory, LegacyCheckpoint& checkpoint)
    : files_(files), directory_(std::move(directory)), checkpoint_(checkpoint) {}

std::shared_ptr<const TorchFile> LegacyAssembly::open(const std::string& name) const {
  const std::string path = join_path(directory_, name);
  require<CheckpointError>(files_.exists(path),
                           "[checkpoint] {} is missing. Restore the file, or load another checkpoint.", path);
  return std::make_shared<const TorchFile>(files_.open_for_reading(path), path);
}

void LegacyAssembly::read_layout(const Object& arguments) {
  const Object* version = ranks_.front().file->root().find(common_state::kCheckpointVersion);
  require<NotSupported>(version && version->as_float() >= 2,
                        "[checkpoint] {} is of checkpoint_version {}; 2.0 and newer can be read, which order queries, "
                        "keys and values alike. Let Megatron convert it.",
                        ranks_.front().file->source(), version ? version->as_float() : 0.0);
  layout_.tensor = count_in(arguments, "tensor_model_parallel_size");
  layout_.pipeline = count_in(arguments, "pipeline_model_parallel_size");
  layout_.expert = count_in(arguments, "expert_model_parallel_size");
  const Object* expert_tensor = value_of(arguments, "expert_tensor_parallel_size");
  require<NotSupported>(
      !value_of(arguments, "num_experts") || !expert_tensor || expert_tensor->as_int() == layout_.tensor,
      "[checkpoint] {}: --expert-tensor-parallel-size differs from tensor parallelism, which is "
      "unsupported with --ckpt-format torch. Let Megatron convert it.",
      directory_);
  const Object* implementation = value_of(arguments, "transformer_impl");
  layout_.has_local_layers = implementation && implementation->as_string() == "local";
  layout_.ties_embeddings = !flag_in(arguments, "untie_embeddings_and_output_weights");
  layout_.bucket_limit = bucket_limit_of(arguments);
  stacks_layers_ = has_equal_layers(arguments);
  while (ranks_.front().file->root().find(fmt::format("model{}", layout_.chunks))) ++layout_.chunks;
}

/// The numbers of pipeline and expert ranks are there where there are several.
std::string LegacyAssembly::rank_name(const RankFile& rank) const {
  std::string name = fmt::format("mp_rank_{:02}", rank.tensor);
  if (layout_.pipeline > 1) name += fmt::format("_{:03}", rank.pipeline);
  if (layout_.expert > 1) name += fmt::format("_{:03}", rank.expert);
  return name;
}

LegacyAssembly::RankFile LegacyAssembly::open_rank(int64_t tensor, int64_t pipeline, int64_t expert) const {
  RankFile rank{.tensor = tensor, .pipeline = pipeline, .expert = expert, .name = {}, .file = {}};
  rank.name = join_path(rank_name(rank), kModelFile);
  rank.file = open(rank.name);
  return rank;
}

void LegacyAssembly::run() {
  const std::string first = LegacyCheckpoint::first_file(files_, directory_);
  ranks_.push_back({.name = first.substr(first.rfind("mp_rank_")), .file = {}});
  ranks_.front().file = open(ranks_.front().name);
  read_layout(ranks_.front().file->root().at(common_state::kArgs));
  ranks_.clear();
  for (int64_t tensor = 0; tensor < layout_.tensor; ++tensor)
    for (int64_t pipeline = 0; pipeline < layout_.pipeline; ++pipeline)
      for (int64_t expert = 0; expert < layout_.expert; ++expert) ranks_.push_back(open_rank(tensor, pipeline, expert));
  for (const RankFile& rank : ranks_) checkpoint_.files_.push_back(rank.file);
  count_layers();
  for (const RankFile& rank : ranks_) {
    std::vector<Tensors> chunks;
    for (int64_t chunk = 0; chunk < layout_.chunks; ++chunk) {
      chunks.push_back(read_chunk(rank, chunk));
      locate(rank, chunk, chunks.back());
      add_weights(rank, chunks.back());
    }
    if (checkpoint_.optimizer_problem_.empty()) add_optimizer(rank, chunks);
  }
}

/// The weights can be read without it.
void LegacyAssembly::add_optimizer(const RankFile& rank, const std::vector<Tensors>& chunks) {
  try {
    add_plain_optimizer(rank, chunks);
    add_distributed_optimizer(rank, chunks);
  } catch (const NotSupported& error) {
    checkpoint_.optimizer_problem_ = error.what();
    const auto is_of_optimizer = [](const auto& entry) { return entry.first.starts_with("optimizer."); };
    std::erase_if(checkpoint_.metadata_.tensors, is_of_optimizer);
    std::erase_if(checkpoint_.sources_, is_of_optimizer);
  }
}

LegacyAssembly::Tensors LegacyAssembly::read_chunk(const RankFile& rank, int64_t chunk) const {
  const Object& root = rank.file->root();
  const Object* model = root.find(layout_.chunks == 1 ? "model" : fmt::format("model{}", chunk));
  require<CheckpointError>(model != nullptr, "[checkpoint] {} holds no model. Load another checkpoint.",
                           rank.file->source());
  Tensors tensors;
  const auto entries = model->is_instance() ? std::span<const pickle::Entry>(model->instance().entries)
                                            : model->entries();  // an OrderedDict is an instance
  for (const pickle::Entry& entry : entries)
    if (auto tensor = torch_tensor(*entry.value)) {
      LocalTensor& local = tensors.emplace_back();
      local.name = parse_module_name(entry.key->as_string());
      local.tensor = std::move(*tensor);
    }
  return tensors;
}

/// Stages follow each other by chunk, then by rank, as Megatron's interleaved pipeline has them.
void LegacyAssembly::count_layers() {
  first_layers_.assign(static_cast<size_t>(layout_.chunks * layout_.pipeline), 0);
  for (int64_t chunk = 0; chunk < layout_.chunks; ++chunk)
    for (const RankFile& rank : ranks_) {
      if (rank.tensor != 0 || rank.expert != 0) continue;
      first_layers_[static_cast<size_t>(chunk * layout_.pipeline + rank.pipeline)] = num_layers_;
      int64_t count = 0;
      for (const LocalTensor& tensor : read_chunk(rank, chunk))
        if (tensor.name.prefix == "decoder.layers.") count = std::max(count, *tensor.name.layer + 1);
      num_layers_ += count;
    }
}

void LegacyAssembly::locate(const RankFile& rank, int64_t chunk, Tensors& tensors) const {
  const int64_t first = first_layers_[static_cast<size_t>(chunk * layout_.pipeline + rank.pipeline)];
  for (LocalTensor& tensor : tensors) locate_tensor(rank, tensors, first, tensor);
}

void LegacyAssembly::locate_tensor(const RankFile& rank, const Tensors& tensors, int64_t first_layer,
                                   LocalTensor& tensor) const {
  const ModuleName& name = tensor.name;
  LayerModules kind;
  const LocalTensor* second = nullptr;  // linear_fc2 beside a linear_fc1
  int64_t num_experts = 0;
  const size_t fc1 = name.name.find("linear_fc1.");
  const std::string of_second = fc1 == std::string::npos ? "" : name.name.substr(0, fc1) + "linear_fc2.weight";
  for (const LocalTensor& other : tensors) {
    if (other.name.prefix != name.prefix || other.name.layer != name.layer) continue;
    kind.has_latent_attention |= other.name.name.find("self_attention.linear_kv_") != std::string::npos;
    // Without Transformer Engine the norm before experts has the name of one before a dense feed-forward.
    kind.has_experts |= !layout_.has_local_layers && other.name.name.find("mlp.router.") != std::string::npos;
    if (other.name.name == of_second && other.name.expert == name.expert) second = &other;
    if (other.name.expert) num_experts = std::max(num_experts, *other.name.expert + 1);
  }
  const bool is_stacked = stacks_layers_ && name.prefix == "decoder.layers.";
  const int64_t layer = name.layer.value_or(0) + (name.prefix == "decoder.layers." ? first_layer : 0);
  tensor.key =
      name.prefix + (name.layer && !is_stacked ? fmt::format("{}.", layer) : "") + stored_norm_name(name.name, kind);
  tensor.is_expert = name.expert.has_value();

  const Shape& local = tensor.tensor.shape;
  const std::optional<int> axis = tensor_parallel_axis(name.name, layout_.has_local_layers);
  const bool is_cut = axis && *axis < local.rank();
  const bool is_gated = second && is_cut && second->tensor.shape.rank() == 2 && local[0] == 2 * second->tensor.shape[1];
  std::vector<int64_t> sizes, offsets;  // of leading axes
  const auto lead = [&](int64_t size, int64_t offset) {
    sizes.push_back(size);
    offsets.push_back(offset);
  };
  if (is_stacked) lead(num_layers_, layer);
  if (name.expert) lead(num_experts * layout_.expert, rank.expert * num_experts + *name.expert);
  Shape whole = local;
  if (is_cut) whole[*axis] *= layout_.tensor;
  tensor.global_shape = concatenated(sizes, whole);
  const int num_parts = is_gated ? 2 : 1;  // gate and up are whole one after the other
  for (int part = 0; part < num_parts; ++part) {
    Shape from = local, to = local, size = local;
    for (int dim = 0; dim < local.rank(); ++dim) from[dim] = to[dim] = 0;
    if (is_cut) {
      size[*axis] /= num_parts;
      from[*axis] = part * size[*axis];
      to[*axis] = (part * layout_.tensor + rank.tensor) * size[*axis];
    }
    tensor.parts.push_back(
        {from, concatenated(offsets, to), concatenated(std::vector<int64_t>(sizes.size(), 1), size)});
  }
  const bool is_tied = layout_.ties_embeddings && layout_.pipeline * layout_.chunks > 1;
  const bool is_output = name.name == kOutputLayer, is_word_embedding = name.name == kWordEmbeddings;
  tensor.is_shared_embedding = is_tied && (is_output || is_word_embedding);
  tensor.is_copy = (!is_cut && rank.tensor > 0) || (!name.expert && rank.expert > 0) ||
                   (tensor.is_shared_embedding && (is_output || rank.pipeline > 0));
}

void LegacyAssembly::add(const std::string& key, const LocalTensor& tensor, const std::string& file_name,
                         const std::shared_ptr<const TorchFile>& file, const TorchTensor& source, int64_t first) {
  if (tensor.is_copy) return;
  const auto [place, is_new] =
      checkpoint_.metadata_.tensors.emplace(key, GlobalTensor{source.type, tensor.global_shape, {}});
  GlobalTensor& whole = place->second;
  require<CheckpointError>(is_new || (whole.shape == tensor.global_shape && whole.type == source.type),
                           "[checkpoint] {}: {} is {} {} there and {} {} in another file. Restore the files.",
                           file->source(), key, source.type, tensor.global_shape, whole.type, whole.shape);
  for (const LocalTensor::Part& part : tensor.parts) {
    const int num_leading = part.sizes.rank() - source.shape.rank();
    TorchTensor view = source;
    view.offset += first + element_offset(part.local, source.strides);
    view.shape = part.sizes;
    view.strides = part.sizes.contiguous_strides();
    for (int dim = 0; dim < source.shape.rank(); ++dim) view.strides[num_leading + dim] = source.strides[dim];
    whole.chunks.push_back({Box{part.global, part.sizes}, {file_name, 0, view.bytes()}});
    checkpoint_.sources_[key].push_back({file, std::move(view)});
  }
}

void LegacyAssembly::add_weights(const RankFile& rank, const Tensors& tensors) {
  for (const LocalTensor& tensor : tensors)
    if (!tensor.name.name.ends_with("._extra_state")) add(tensor.key, tensor, rank.name, rank.file, tensor.tensor, 0);
}

void LegacyAssembly::add_plain_optimizer(const RankFile& rank, const std::vector<Tensors>& chunks) {
  const Object* stored = rank.file->root().find(common_state::kOptimizer);
  if (!stored) return;
  std::vector<const Object*> optimizers = {stored};
  if (stored->kind() == pickle::Kind::kList) optimizers.assign(stored->items().begin(), stored->items().end());
  for (const Object* optimizer : optimizers) {
    const Object* inner = optimizer->find(common_state::kOptimizer);
    if (!inner) inner = optimizer;
    const Object* state = inner->find(common_state::kState);
    if (!state || state->entries().empty()) continue;
    const auto groups = inner->at(common_state::kParamGroups).items();
    int64_t next = 0;
    for (size_t group = 0; group < groups.size(); ++group) {
      std::vector<const LocalTensor*> members;
      for (const Tensors& tensors : chunks)
        for (const LocalTensor& tensor : tensors)
          if (is_parameter_name(tensor.name.name) &&
              is_in_param_group(*groups[group], tensor.name.name, tensor.tensor.shape,
                                tensor.is_expert && layout_.expert > 1))
            members.push_back(&tensor);
      add_group(rank, *optimizer, group, members, next);
      next += std::ssize(members);
    }
    require<NotSupported>(next == std::ssize(state->entries()),
                          "[checkpoint] {}: the optimizer has states of {} parameters, its groups have {}. {}",
                          rank.file->source(), state->entries().size(), next, kRemedy);
  }
}

void LegacyAssembly::add_group(const RankFile& rank, const Object& optimizer, size_t group,
                               const std::vector<const LocalTensor*>& members, int64_t first) {
  const Object* inner = optimizer.find(common_state::kOptimizer);
  const auto states = (inner ? *inner : optimizer).at(common_state::kState).entries();
  const Object* all_main = optimizer.find("fp32_from_fp16_params");
  const auto add_tensor = [&](std::string_view name, const LocalTensor& member, const Object& object) {
    const auto tensor = torch_tensor(object);
    require<NotSupported>(tensor && tensor->shape == member.tensor.shape,
                          "[checkpoint] {}: {} of the optimizer does not have the shape {} of {}. {}",
                          rank.file->source(), name, member.tensor.shape, member.key, kRemedy);
    add(optimizer_state_key(name, member.key), member, rank.name, rank.file, *tensor, 0);
  };
  size_t num_main = 0;  // of the group's members that have one
  for (size_t i = 0; i < members.size(); ++i) {
    const LocalTensor& member = *members[i];
    const int64_t index = first + static_cast<int64_t>(i);
    const auto found =
        std::ranges::find_if(states, [&](const pickle::Entry& one) { return one.key->as_int() == index; });
    require<NotSupported>(found != states.end(), "[checkpoint] {}: the optimizer has no state {} of {}. {}",
                          rank.file->source(), index, member.key, kRemedy);
    for (const std::string_view name :
         {optimizer_state::kFirstMoment, optimizer_state::kSecondMoment, optimizer_state::kMomentum})
      if (const Object* moment = found->value->find(name); moment && !moment->is_none())
        add_tensor(name, member, *moment);
    if (!all_main || !has_16_bits(member.tensor.type)) continue;
    const auto mains = all_main->items();
    require<NotSupported>(group < mains.size() && num_main < mains[group]->items().size(),
                          "[checkpoint] {}: the optimizer has no main parameter of {}. {}", rank.file->source(),
                          member.key, kRemedy);
    add_tensor(optimizer_state::kMaster, member, *mains[group]->items()[num_main++]);
  }
}

void LegacyAssembly::add_distributed_optimizer(const RankFile& rank, const std::vector<Tensors>& chunks) {
  const std::string name = join_path(rank_name(rank), kOptimizerFile);
  if (!files_.exists(join_path(directory_, name))) return;
  const auto file = open(name);
  checkpoint_.files_.push_back(file);
  std::vector<const Object*> optimizers = {&file->root()};
  if (file->root().kind() == pickle::Kind::kList)
    optimizers.assign(file->root().items().begin(), file->root().items().end());
  for (size_t i = 0; i < optimizers.size(); ++i) {
    if (optimizers[i]->is_none()) continue;  // another expert rank has the dense parameters
    for (const pickle::Entry& buffer : optimizers[i]->entries()) {
      if (buffer.key->kind() != pickle::Kind::kInt) continue;  // "buckets_coalesced"
      const int64_t chunk = buffer.key->as_int();
      require<NotSupported>(chunk >= 0 && chunk < std::ssize(chunks) && buffer.value->entries().size() == 1,
                            "[checkpoint] {}: the optimizer has buffers of several dtypes, which is unsupported. {}",
                            file->source(), kRemedy);
      std::vector<const LocalTensor*> members;
      for (const LocalTensor& tensor : chunks[static_cast<size_t>(chunk)])
        if (is_parameter_name(tensor.name.name) && (optimizers.size() == 1 || tensor.is_expert == (i == 1)))
          members.push_back(&tensor);
      add_buffer(name, file, *buffer.value->entries()[0].value, members);
    }
  }
}

void LegacyAssembly::add_buffer(const std::string& file_name, const std::shared_ptr<const TorchFile>& file,
                                const Object& buffer, const std::vector<const LocalTensor*>& members) {
  std::vector<BucketEntry> entries;
  entries.reserve(members.size());
  for (const LocalTensor* member : members)
    entries.push_back({member->tensor.shape.num_elements(), member->is_shared_embedding});
  const int64_t stored = buffer.at("numel_unpadded").as_int();
  std::optional<std::vector<BucketSlot>> slots;
  std::vector<int64_t> sizes;
  for (const auto& limit : {layout_.bucket_limit, std::optional<int64_t>()}) {  // later stages have one bucket
    sizes = bucket_sizes(entries, limit);
    if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == stored) slots = bucket_slots(entries, sizes);
    if (slots) break;
  }
  require<NotSupported>(slots.has_value(),
                        "[checkpoint] {}: the model's parameters do not fit the optimizer's {} elements. {}",
                        file->source(), stored, kRemedy);
  for (const std::string_view name :
       {optimizer_state::kDistributedMaster, optimizer_state::kFirstMoment, optimizer_state::kSecondMoment}) {
    const Object* object = buffer.find(name);
    const auto flat = object ? torch_tensor(*object) : std::nullopt;
    require<CheckpointError>(flat && flat->shape == Shape{stored}, "[checkpoint] {}: {} does not have {} elements.",
                             file->source(), name, stored);
    for (size_t i = 0; i < members.size(); ++i) {
      const BucketSlot& slot = (*slots)[i];
      const int64_t before =
          std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(slot.bucket), int64_t{0});
      TorchTensor source = *flat;
      source.shape = members[i]->tensor.shape;
      source.strides = source.shape.contiguous_strides();
      add(optimizer_state_key(name, members[i]->key), *members[i], file_name, file, source, before + slot.begin);
    }
  }
}

}  // namespace megatron
