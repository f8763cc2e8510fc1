#include "megatron/dist_checkpointing/bucketed_optimizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/bucket_slots.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/rank_tensors.h"

namespace megatron {
namespace {

constexpr std::string_view kRoot = "optimizer.distributed.dp_group_idx_", kChained = "chained_";
constexpr std::string_view kBucket = ".bucket_idx_";
constexpr const char* kBucketRemedy =
    "Load the weights alone with --no-load-optim, or save with Megatron's --dist-ckpt-optim-fully-reshardable.";

std::vector<BucketEntry> entries_of(const std::vector<RankTensor>& tensors) {
  std::vector<BucketEntry> entries;
  entries.reserve(tensors.size());
  for (const RankTensor& tensor : tensors) entries.push_back({tensor.num_elements, tensor.is_shared_embedding});
  return entries;
}

}  // namespace

namespace bucketed_keys {

std::string group(int chained, int64_t group) {
  return fmt::format("{}{}{}.", chained < 0 ? "" : fmt::format("{}{}.", kChained, chained), kRoot, group);
}

std::string bucket(std::string_view group, size_t buffer, std::string_view dtypes, size_t bucket) {
  return fmt::format("{}gbuf_idx_{}.dtype_{}{}{}.", group, buffer, dtypes, kBucket, bucket);
}

std::string object(std::string_view group, std::string_view name) { return fmt::format("{}{}/shard_0_1", group, name); }

bool are_in(const CheckpointMetadata& metadata) {
  const auto first = metadata.tensors.lower_bound(kRoot);
  return (first != metadata.tensors.end() && first->first.starts_with(kRoot)) || are_chained(metadata);
}

bool are_chained(const CheckpointMetadata& metadata) {
  const std::string first_of_chain = fmt::format("{}0.{}", kChained, kRoot);
  const auto first = metadata.tensors.lower_bound(first_of_chain);
  return first != metadata.tensors.end() && first->first.starts_with(first_of_chain);
}

}  // namespace bucketed_keys

class BucketAssembly {
 public:
  BucketAssembly(const CheckpointReader& reader, BucketedOptimizer& optimizer)
      : reader_(reader), optimizer_(optimizer), is_chained_(bucketed_keys::are_chained(reader.metadata())) {
    const CheckpointReader::CommonState common = reader.read_common_state();
    division_ = ModelDivision::of(common.state().at(common_state::kArgs));
    for (const auto& [key, tensor] : reader.metadata().tensors)
      if (key.find("optimizer.") == std::string::npos) model_.emplace(key, GlobalTensor{tensor.type, tensor.shape, {}});
  }

  void run() {
    num_layers_ = num_layers_of(model_);
    find_stages();
    const int dense = is_chained_ ? 0 : -1;
    for (int64_t stage = 0; stage < division_.pipeline; ++stage)
      for (int64_t tensor = 0; tensor < division_.tensor; ++tensor)
        add_group({.chained = dense, .index = stage * division_.tensor + tensor, .stage = stage},
                  {.tensor = tensor, .expert = 0, .expert_tensor = tensor});
    if (!is_chained_) return;
    int64_t index = 0;  // of the group: tensor ranks of experts first, then their ranks, then stages
    for (int64_t stage = 0; stage < division_.pipeline; ++stage)
      for (int64_t expert = 0; expert < division_.expert; ++expert)
        for (int64_t tensor = 0; tensor < division_.expert_tensor; ++tensor)
          add_group({.chained = 1, .index = index++, .stage = stage},
                    {.tensor = 0, .expert = expert, .expert_tensor = tensor});
  }

 private:
  struct Group {
    int chained = -1;  // number of the optimizer
    int64_t index = 0, stage = 0;
    std::string key() const { return bucketed_keys::group(chained, index); }
  };

  /// The sizes of buckets without padding, by buffer: [[{(parameters' dtype, gradients' dtype): [sizes]}]].
  std::vector<std::vector<int64_t>> buffers_of(const Group& group) const {
    const TorchFile file = reader_.read_object(bucketed_keys::object(group.key(), "per_bucket_numel_unpadded"));
    std::vector<std::vector<int64_t>> buffers;
    for (const pickle::Object* buffer : file.root().items()[0]->items()) {
      require<NotSupported>(buffer->entries().size() == 1,
                            "[checkpoint] {}: a buffer of the optimizer has {} dtypes; one can be read. {}",
                            file.source(), buffer->entries().size(), kBucketRemedy);
      std::vector<int64_t>& sizes = buffers.emplace_back();
      for (const pickle::Object* size : buffer->entries()[0].value->items()) sizes.push_back(size->as_int());
    }
    return buffers;
  }

  /// The tensors of a rank that one of the optimizers updates.
  std::vector<RankTensor> members(const StagePart& part, const StageRank& rank, int chained) const {
    std::vector<RankTensor> tensors = tensors_of_rank(model_, division_, part, rank, RankContents::kParameters);
    if (is_chained_)
      std::erase_if(tensors, [&](const RankTensor& tensor) { return tensor.expert.has_value() != (chained == 1); });
    return tensors;
  }

  /// Divides the layers: the first chunks of all stages hold the first layers, then come the second chunks.
  void find_stages() {
    std::vector<std::vector<std::vector<int64_t>>> buffers;  // of each stage's first rank
    for (int64_t stage = 0; stage < division_.pipeline; ++stage)
      buffers.push_back(
          buffers_of({.chained = is_chained_ ? 0 : -1, .index = stage * division_.tensor, .stage = stage}));
    for (const auto& of_stage : buffers) division_.chunks = std::max(division_.chunks, std::ssize(of_stage));
    std::vector<size_t> num_used(buffers.size());
    int64_t next = 0;
    for (int64_t chunk = 0; chunk < division_.chunks; ++chunk)
      for (size_t stage = 0; stage < buffers.size(); ++stage) {
        const bool is_first = chunk == 0 && stage == 0;
        const bool is_last = chunk + 1 == division_.chunks && stage + 1 == buffers.size();
        StagePart part{.first_layer = next, .num_layers = 0, .has_embedding = is_first, .has_head = is_last};
        size_t& used = num_used[stage];
        const bool may_be_empty = std::ssize(buffers[stage]) - static_cast<int64_t>(used) < division_.chunks - chunk;
        const auto fits = [&](int64_t num_layers) {
          part.num_layers = num_layers;
          const std::vector<BucketEntry> entries = entries_of(members(part, {}, 0));
          if (entries.empty()) return may_be_empty;
          return used < buffers[stage].size() && bucket_slots(entries, buffers[stage][used]).has_value();
        };
        int64_t num_layers = is_last ? num_layers_ - next : 0;
        while (next + num_layers <= num_layers_ && !fits(num_layers)) ++num_layers;
        require<NotSupported>(next + num_layers <= num_layers_,
                              "[checkpoint] {}: no number of layers fills the optimizer's buckets of pipeline stage {} "
                              "(chunk {}). {}",
                              reader_.directory(), stage, chunk, kBucketRemedy);
        used += members(part, {}, 0).empty() ? 0 : 1;
        next += num_layers;
        parts_.push_back(part);
      }
  }

  void add_group(const Group& group, const StageRank& rank) {
    const std::vector<std::vector<int64_t>> buffers = buffers_of(group);
    size_t buffer = 0;
    for (int64_t chunk = 0; chunk < division_.chunks; ++chunk) {
      const StagePart& part = parts_[static_cast<size_t>(chunk * division_.pipeline + group.stage)];
      const std::vector<RankTensor> tensors = members(part, rank, group.chained);
      if (tensors.empty()) continue;  // a stage without experts
      const auto slots = buffer < buffers.size() ? bucket_slots(entries_of(tensors), buffers[buffer]) : std::nullopt;
      require<NotSupported>(slots.has_value(),
                            "[checkpoint] {}: the model's parameters do not fit the optimizer's buckets {}gbuf_idx_{}. "
                            "{}",
                            reader_.directory(), group.key(), buffer, kBucketRemedy);
      const std::string prefix = prefix_of(group, buffer);
      for (size_t i = 0; i < tensors.size(); ++i)
        if (!tensors[i].is_copy) add_tensor(tensors[i], prefix, (*slots)[i]);
      ++buffer;
    }
  }

  /// The prefix of the keys of a buffer's buckets.
  std::string prefix_of(const Group& group, size_t buffer) const {
    const auto& tensors = reader_.metadata().tensors;
    const std::string begin = fmt::format("{}gbuf_idx_{}.dtype_", group.key(), buffer);
    const auto first = tensors.lower_bound(begin);
    require<NotSupported>(first != tensors.end() && first->first.starts_with(begin),
                          "[checkpoint] {} has no tensor {}. {}", reader_.directory(), begin, kBucketRemedy);
    return first->first.substr(0, first->first.find(kBucket) + kBucket.size());
  }

  void add_tensor(const RankTensor& tensor, const std::string& prefix, const BucketSlot& slot) {
    for (const std::string_view state : {optimizer_state::kDistributedMaster, optimizer_state::kFirstMoment,
                                         optimizer_state::kSecondMoment, optimizer_state::kMomentum}) {
      const std::string bucket = fmt::format("{}{}.{}", prefix, slot.bucket, state);
      const auto type = reader_.metadata().tensors.find(bucket);
      if (type == reader_.metadata().tensors.end()) continue;  // an optimizer without this state
      const std::string key = optimizer_state_key(state, tensor.key);
      GlobalTensor& whole =
          optimizer_.tensors_.emplace(key, GlobalTensor{type->second.type, model_.find(tensor.key)->second.shape, {}})
              .first->second;
      for (const RankTensor::Part& part : tensor.parts) {
        whole.chunks.push_back({part.whole, {}});
        optimizer_.sources_[key].push_back({bucket, slot.begin + part.first});
      }
    }
  }

  const CheckpointReader& reader_;
  BucketedOptimizer& optimizer_;
  bool is_chained_;
  ModelDivision division_;
  std::map<std::string, GlobalTensor, std::less<>> model_;
  int64_t num_layers_ = 0;
  std::vector<StagePart> parts_;  // by chunk * pipeline size + stage
};

BucketedOptimizer::BucketedOptimizer(const CheckpointReader& reader) {
  try {
    BucketAssembly(reader, *this).run();
  } catch (const Error& error) {
    problem_ = error.what();
    tensors_.clear();
    sources_.clear();
  }
}

}  // namespace megatron
