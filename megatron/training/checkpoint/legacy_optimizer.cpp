// The optimizer's state in the files of LegacyWriter.
#include <fmt/core.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/legacy_assembly.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/stored_box_source.h"
#include "megatron/distributed/data_parallel_plan.h"
#include "megatron/training/checkpoint/bucket_objects.h"
#include "megatron/training/checkpoint/legacy_writer.h"
#include "megatron/training/checkpoint/target_ranks.h"

namespace megatron {
namespace {

using pickle::Object;

/// Tensors one after the other, with zeros between them.
class JoinedSource final : public TensorSource {
 public:
  /// @param source  null: zeros
  void add(std::unique_ptr<TensorSource> source, int64_t bytes) {
    if (bytes > 0) pieces_.push_back({std::move(source), bytes_, bytes});
    bytes_ += std::max<int64_t>(bytes, 0);
  }
  int64_t bytes() const override { return bytes_; }
  std::span<const std::byte> read(int64_t begin, int64_t count) override {
    buffer_.assign(static_cast<size_t>(count), std::byte{0});
    const int64_t end = begin + count;
    for (const Piece& piece : pieces_) {
      const int64_t from = std::max(begin, piece.begin), to = std::min(end, piece.begin + piece.bytes);
      if (from >= to || !piece.source) continue;
      const auto part = piece.source->read(from - piece.begin, to - from);
      std::ranges::copy(part, buffer_.begin() + (from - begin));
    }
    return buffer_;
  }

 private:
  struct Piece {
    std::unique_ptr<TensorSource> source;
    int64_t begin = 0, bytes = 0;
  };
  std::vector<Piece> pieces_;
  int64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
};

/// Returns the shape that the rank's modules have.
Shape local_shape(const RankTensor& tensor) {
  const Shape& sizes = tensor.parts[0].whole.sizes;
  return Shape(std::span<const int64_t>(sizes.begin() + tensor.num_leading, sizes.end()));
}

}  // namespace

Object& LegacyWriter::make_optimizer(TorchObject& object, const Chunks& chunks) const {
  const size_t num_optimizers = is_chained() ? 2 : 1;
  std::vector<Object*> all;
  for (size_t number = 0; number < num_optimizers; ++number) {
    const StoredOptimizer::Legacy stored = optimizer_->make_legacy(object, number, num_optimizers);
    if (form_ == OptimizerForm::kReplicated) {
      std::vector<const RankTensor*> members;
      for (const auto& chunk : chunks)
        for (const RankTensor& tensor : chunk)
          if (!is_chained() || tensor.expert.has_value() == (number == 1)) members.push_back(&tensor);
      add_states(object, stored, members, is_chained() && number == 1);
    }
    all.push_back(stored.outer);
  }
  return all.size() == 1 ? *all[0] : object.graph.list(std::move(all));
}

/// Parameters are numbered by group, within a group as their modules register them.
void LegacyWriter::add_states(TorchObject& object, const StoredOptimizer::Legacy& stored,
                              const std::vector<const RankTensor*>& all, bool of_experts) const {
  pickle::Graph& graph = object.graph;
  Object& state = graph.dict();
  std::vector<Object*> main_params;
  int64_t next = 0;
  for (Object* group : stored.groups) {
    std::vector<Object*> numbers, mains;
    for (const RankTensor* tensor : all) {
      if (!is_in_param_group(*group, tensor->name, local_shape(*tensor), of_experts)) continue;
      Object& own = graph.dict();
      if (stored.has_common_step) {
        const auto num_steps = static_cast<float>(stored.num_steps);
        graph.set(own, "step", object.add_tensor(ConstView{&num_steps, DType::kFloat32, {}, {}}));
      }
      const auto names = states_.find(tensor->key);
      for (const std::string& name : names == states_.end() ? std::vector<std::string>() : names->second) {
        Object& value = add_tensor(object, optimizer_state_key(name, tensor->key), *tensor);
        if (name == optimizer_state::kMaster)
          mains.push_back(&value);
        else
          graph.set(own, name, value);
      }
      state.mutable_entries().push_back({&graph.integer(next), &own});
      numbers.push_back(&graph.integer(next++));
    }
    graph.set(*group, "params", graph.list(std::move(numbers)));
    main_params.push_back(&graph.list(std::move(mains)));
  }
  require<NotSupported>(next == std::ssize(all),
                        "[checkpoint] the groups of the optimizer have {} of {} parameters of a rank, which the form "
                        "torch cannot hold. Keep torch_dist.",
                        next, all.size());
  graph.set(*stored.inner, common_state::kState, state);
  if (stored.inner != stored.outer)
    graph.set(*stored.outer, "fp32_from_fp16_params", graph.list(std::move(main_params)));
}

/// {"buckets_coalesced": True, 0: {(dtypes): {"param": ..., "numel_unpadded": ...}}}: the buckets of each buffer, one
/// after the other without the padding at their ends.
Object& LegacyWriter::make_buffers(TorchObject& object, const Chunks& chunks, const Rank& rank, bool of_experts) const {
  pickle::Graph& graph = object.graph;
  Object& root = graph.dict();
  graph.set(root, "buckets_coalesced", graph.boolean(true));
  const CheckpointReader::CommonState common = reader_.read_common_state();
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    const DataParallelPlan plan =
        bucket_plan(chunks, chunk, rank.stage, layout_, model_, common.state().at(common_state::kArgs));
    const BufferPlan* own = nullptr;
    for (const BufferPlan& buffer : plan.buffers) {
      if (buffer.is_expert != of_experts) continue;
      require<NotSupported>(!own,
                            "[checkpoint] parameters of several dtypes have several buffers, which the form torch "
                            "cannot hold. Keep torch_dist.");
      own = &buffer;
    }
    if (!own) continue;
    Object& tensors = graph.dict();
    std::map<std::string, std::unique_ptr<JoinedSource>> joined;
    std::map<std::string, ElementType> types;
    int64_t begin = 0;  // of the bucket
    for (const BufferLayout::Bucket& bucket : own->layout.buckets) {
      for (const size_t entry : bucket.entries) {
        const RankTensor& tensor = chunks[chunk][own->parameters[entry]];
        const auto states = states_.find(tensor.key);
        require<NotSupported>(states != states_.end(), "[checkpoint] the optimizer has no state of {}.", tensor.key);
        for (const std::string& name : states->second) {
          auto& source = joined.emplace(name, nullptr).first->second;
          if (!source) source = std::make_unique<JoinedSource>();
          const std::string key = optimizer_state_key(name, tensor.key);
          const ElementType type = types.emplace(name, type_of(key)).first->second;
          const int64_t bytes = size_of(type);
          const int64_t first = begin + own->layout.slots[entry].range.begin - bucket.range.begin;
          source->add(nullptr, first * bytes - source->bytes());
          std::vector<Box> boxes;
          for (const RankTensor::Part& part : tensor.parts) boxes.push_back(part.whole);
          source->add(std::make_unique<StoredBoxSource>(reader_, key, std::move(boxes), on_bytes_),
                      tensor.num_elements * bytes);
        }
      }
      begin += bucket.num_unpadded;
    }
    for (auto& [name, source] : joined) {
      source->add(nullptr, begin * size_of(types.at(name)) - source->bytes());
      graph.set(tensors, name, object.add_tensor(types.at(name), {begin}, std::move(source)));
    }
    graph.set(tensors, "numel_unpadded", graph.integer(begin));
    Object& by_dtypes = graph.dict();
    by_dtypes.mutable_entries().push_back({&bucket_dtypes_object(graph, *own), &tensors});
    root.mutable_entries().push_back({&graph.integer(static_cast<int64_t>(chunk)), &by_dtypes});
  }
  return root;
}

TorchObject LegacyWriter::optimizer_file(const Rank& rank) const {
  const Chunks chunks = chunks_of(rank, RankContents::kParameters);
  TorchObject object;
  if (!is_chained()) {
    object.root = &make_buffers(object, chunks, rank, false);
    return object;
  }
  // Expert ranks hold the same dense parameters; the first stores their state.
  Object& dense = rank.expert == 0 ? make_buffers(object, chunks, rank, false) : object.graph.none();
  object.root = &object.graph.list({&dense, &make_buffers(object, chunks, rank, true)});
  return object;
}

}  // namespace megatron
