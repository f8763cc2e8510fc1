#include "megatron/kernels/cuda/attention/cudnn_attention.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <optional>

#include "megatron/kernels/cuda/attention/cudnn_attention_plan.h"
#include "megatron/kernels/cuda/attention/cudnn_attention_tables.h"
#include "megatron/kernels/cuda/library_handles.h"

namespace fe = cudnn_frontend;

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where cudnn-frontend looks up cuDNN's functions; set once, by load()
}

namespace megatron::kernels {
namespace {

constexpr const char* kLibrary = "libcudnn.so.9";
constexpr size_t kOldestVersion = 91800;  // earlier ones need workarounds or have known faults

constexpr int kCudaMajor = CUDART_VERSION / 1000;

/// Advice to install cuDNN, with the package.
std::string remedy() {
  return fmt::format(
      "For faster attention install cuDNN 9.18 or newer: pip install 'nvidia-cudnn-cu{0}>=9.18' and put "
      "nvidia/cudnn/lib of its site-packages in front of LD_LIBRARY_PATH, or apt-get install libcudnn9-cuda-{0}",
      kCudaMajor);
}

CudnnState load() {
  fe::cudnn_dlhandle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!fe::cudnn_dlhandle) return {false, fmt::format("{} cannot be loaded: {}. {}", kLibrary, dlerror(), remedy())};
  const size_t version = fe::detail::get_backend_version();
  const std::string name = fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  if (version < kOldestVersion) return {false, fmt::format("{} is older than 9.18. {}", name, remedy())};
  return {true, name};
}

/// Ids of a graph's tensors, by which execution finds their data. The tables of offsets follow in the order of the
/// first kCudnnOffsetTables.
enum Uid : int64_t { kQ, kK, kV, kO, kGradO, kGradQ, kGradK, kGradV, kLse, kQueryLengths, kKeyLengths, kFirstOffsets };
static_assert(kLse + 1 == kCudnnOffsetTables);
constexpr int64_t kSeed = kFirstOffsets + kCudnnOffsetTables, kSeedOffset = kSeed + 1;

constexpr bool is_of_keys(int64_t uid) { return uid == kK || uid == kV || uid == kGradK || uid == kGradV; }

using Strides = std::array<int64_t, 3>;  // of columns, heads and rows

/// Everything on which a plan depends.
struct PlanKey {
  bool is_backward, is_deterministic, has_tables;
  DType dtype;
  int64_t num_sequences, n, g, s, s_k, d, dv;
  std::array<Strides, kCudnnOffsetTables> strides;  // by Uid
  float scale, dropout;
  int64_t left, right;  // of the window; -1: none
  bool ends_aligned;    // the mask's diagonal ends at the last query and key instead of beginning at the first ones
  int64_t max_workspace_bytes;
  auto operator<=>(const PlanKey&) const = default;
};

struct Plan {
  fe::graph::Graph graph;
  bool is_usable = false;
};

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Builds the graph of a key. Dimensions are {sequences, heads, rows, width}, whatever the order in memory.
class GraphBuilder {
 public:
  GraphBuilder(const PlanKey& key, fe::graph::Graph& graph) : key_(key), graph_(graph) {
    graph.set_io_data_type(key.dtype == DType::kBFloat16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (!key.has_tables) return;
    query_lengths_ = table(kQueryLengths, key.num_sequences, fe::DataType_t::INT32);
    key_lengths_ = table(kKeyLengths, key.num_sequences, fe::DataType_t::INT32);
    for (int64_t i = 0; i < kCudnnOffsetTables; ++i) {
      const bool is_of_backward = i >= kGradO && i <= kGradV;
      if (is_of_backward && !key.is_backward) continue;
      offsets_[static_cast<size_t>(i)] = table(kFirstOffsets + i, key.num_sequences + 1, fe::DataType_t::INT64);
    }
  }

  void forward() {
    auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    set_mask(options);
    const Tensor q = input(kQ, key_.n, key_.d), k = input(kK, key_.g, key_.d), v = input(kV, key_.g, key_.dv);
    auto [o, lse] = graph_.sdpa(q, k, v, options);
    describe(*o, kO, key_.n, key_.dv).set_output(true);
    describe(*lse, kLse, key_.n, 1).set_output(true).set_data_type(fe::DataType_t::FLOAT);
  }

  void backward() {
    auto options = fe::graph::SDPA_backward_attributes().set_name("attention_backward");
    options.set_deterministic_algorithm(key_.is_deterministic);
    set_mask(options);
    if (key_.has_tables) options.set_max_total_seq_len_q(key_.s).set_max_total_seq_len_kv(key_.s_k);
    const Tensor q = input(kQ, key_.n, key_.d), k = input(kK, key_.g, key_.d), v = input(kV, key_.g, key_.dv);
    const Tensor o = input(kO, key_.n, key_.dv), grad_o = input(kGradO, key_.n, key_.dv), lse = input(kLse, key_.n, 1);
    auto [grad_q, grad_k, grad_v] = graph_.sdpa_backward(q, k, v, o, grad_o, lse, options);
    describe(*grad_q, kGradQ, key_.n, key_.d).set_output(true);
    describe(*grad_k, kGradK, key_.g, key_.d).set_output(true);
    describe(*grad_v, kGradV, key_.g, key_.dv).set_output(true);
  }

 private:
  template <class Options>
  void set_mask(Options& options) const {
    options.set_attn_scale(key_.scale);
    if (key_.dropout > 0) options.set_dropout(key_.dropout, number(kSeed), number(kSeedOffset));
    if (key_.has_tables) options.set_padding_mask(true).set_seq_len_q(query_lengths_).set_seq_len_kv(key_lengths_);
    if (key_.right < 0) return;
    using Alignment = fe::DiagonalAlignment_t;
    options.set_diagonal_alignment(key_.ends_aligned ? Alignment::BOTTOM_RIGHT : Alignment::TOP_LEFT)
        .set_diagonal_band_right_bound(static_cast<int>(key_.right));
    // cuDNN includes the diagonal.
    if (key_.left >= 0) options.set_diagonal_band_left_bound(static_cast<int>(key_.left + 1));
  }
  fe::graph::Tensor_attributes& describe(fe::graph::Tensor_attributes& tensor, Uid uid, int64_t heads,
                                         int64_t width) const {
    const auto i = static_cast<size_t>(uid);
    const Strides& strides = key_.strides[i];
    tensor.set_uid(uid)
        .set_dim({key_.num_sequences, heads, is_of_keys(uid) ? key_.s_k : key_.s, width})
        .set_stride({strides[0], strides[1], strides[2], 1});
    if (key_.has_tables) tensor.set_ragged_offset(offsets_[i]);
    return tensor;
  }
  Tensor number(int64_t uid) const { return table(uid, 1, fe::DataType_t::INT64); }
  Tensor table(int64_t uid, int64_t size, fe::DataType_t type) const {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_dim({size, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(type));
  }
  Tensor input(Uid uid, int64_t heads, int64_t width) const {
    fe::graph::Tensor_attributes tensor;
    describe(tensor, uid, heads, width);
    if (uid == kLse) tensor.set_data_type(fe::DataType_t::FLOAT);
    return graph_.tensor(tensor);
  }

  const PlanKey& key_;
  fe::graph::Graph& graph_;
  Tensor query_lengths_, key_lengths_;
  std::array<Tensor, kCudnnOffsetTables> offsets_;
};

/// cuDNN's handle of a device and the plans made with it.
class CudnnHandles final : public LibraryHandles {
 public:
  CudnnHandles() : is_usable_(cudnn_state().is_usable && fe::detail::create_handle(&handle_) == CUDNN_STATUS_SUCCESS) {}
  ~CudnnHandles() override {
    if (is_usable_) fe::detail::destroy_handle(handle_);
  }
  CudnnHandles(const CudnnHandles&) = delete;
  CudnnHandles& operator=(const CudnnHandles&) = delete;

  /// Null: cuDNN cannot run it.
  const Plan* plan(const PlanKey& key) {
    if (!is_usable_) return nullptr;
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      found = plans_.try_emplace(key).first;
      make(key, found->second);
    }
    return found->second.is_usable ? &found->second : nullptr;
  }
  void run(const CudaStream& stream, const Plan& plan, std::unordered_map<int64_t, void*>& data, void* workspace) {
    require<DeviceError>(fe::detail::set_stream(handle_, stream.stream) == CUDNN_STATUS_SUCCESS,
                         "[attention] cuDNN rejected the stream.");
    auto status = plan.graph.execute(handle_, data, workspace);
    require<DeviceError>(status.is_good(), "[attention] cuDNN failed: {}.", status.get_message());
  }

 private:
  void make(const PlanKey& key, Plan& plan) const {
    GraphBuilder builder(key, plan.graph);
    key.is_backward ? builder.backward() : builder.forward();
    if (plan.graph.validate().is_bad() || plan.graph.build_operation_graph(handle_).is_bad() ||
        plan.graph.create_execution_plans({fe::HeurMode_t::A}).is_bad())
      return;
    plan.is_usable = plan.graph.check_support().is_good() && plan.graph.build_plans().is_good() &&
                     plan.graph.get_workspace_size() <= key.max_workspace_bytes;
  }

  cudnnHandle_t handle_ = nullptr;
  bool is_usable_;
  std::map<PlanKey, Plan> plans_;
};

/// A piece of [s, b, heads, width]: pointers to its first element.
struct Tensors {
  std::array<const ConstView*, kCudnnOffsetTables> views{};  // by Uid, null: none
  int64_t heads_per_group = 1;
};

Strides strides_of(const ConstView& x, bool is_lse) {
  if (is_lse) return {x.strides[1], x.strides[0], x.strides[2]};
  return {x.strides[1], x.strides[2], x.strides[0]};
}

void* piece_of(const ConstView& x, const Strides& strides, int64_t column, int64_t head) {
  return static_cast<char*>(const_cast<void*>(x.data)) + (column * strides[0] + head * strides[1]) * size_of(x.dtype);
}

/// Both directions: all pieces by one plan.
template <class Args>
bool run(const CudaStream& stream, const Args& args, const Tensors& tensors, bool is_backward) {
  const AttentionOptions& options = args.options;
  const bool has_tables = has_cudnn_tables(args.layout);
  const bool ends_aligned = args.layout.form == SpanForm::kEndsAligned;
  const int64_t s = args.q.shape[0], s_k = args.k.shape[0], right = std::min(options.window_right, s_k);
  const int64_t b = args.q.shape[1], g = args.k.shape[2], heads_per_group = args.q.shape[2] / g;
  const CudnnPiece piece = cudnn_piece(args);
  const CudnnTables tables = cudnn_tables(args.q, args.layout);
  const int64_t bytes = cudnn_workspace_bytes(args);
  require<InternalError>(args.workspace.defined() && args.workspace.num_elements() >= bytes,
                         "[attention] {} bytes of workspace are needed.", bytes);
  PlanKey key{.is_backward = is_backward,
              .is_deterministic = is_backward && options.is_deterministic,
              .has_tables = has_tables,
              .dtype = args.q.dtype,
              .num_sequences = has_tables ? cudnn_num_sequences(args.layout) : piece.num_columns,
              .n = piece.num_groups * heads_per_group,
              .g = piece.num_groups,
              .s = s,
              .s_k = s_k,
              .d = args.q.shape[3],
              .dv = args.v.shape[3],
              .scale = static_cast<float>(options.scale),
              .dropout = static_cast<float>(options.dropout),
              .left = std::min(options.window_left, s_k),  // cuDNN takes an int
              .right = args.layout.form == SpanForm::kAllVisible ? -1
                       : options.is_causal                       ? 0
                                                                 : right,
              .ends_aligned = ends_aligned,
              .max_workspace_bytes = bytes - tables.total - cudnn_seed_bytes(options)};
  const CudnnTablePlaces places(tables, args.workspace.data);
  const ConstView statistics{
      places.statistics, DType::kFloat32, args.lse.shape, {1, args.q.shape[2], b * args.q.shape[2]}};
  std::array<ConstView, kCudnnOffsetTables> views;
  for (size_t i = 0; i < views.size(); ++i) {
    if (!tensors.views[i]) continue;
    views[i] = has_tables && i == kLse ? statistics : *tensors.views[i];
    key.strides[i] = strides_of(views[i], i == kLse);
  }
  auto& library = library_handles<CudnnHandles>(stream);
  const Plan* plan = library.plan(key);
  if (!plan) return false;
  std::unordered_map<int64_t, void*> data;
  if (has_tables) {
    CudnnTableStrides strides[kCudnnOffsetTables];
    for (size_t i = 0; i < views.size(); ++i) {
      strides[i] = {key.strides[i][2], key.strides[i][0], is_of_keys(static_cast<int64_t>(i))};
      if (tensors.views[i]) data[kFirstOffsets + static_cast<int64_t>(i)] = places.offsets[i];
    }
    data[kQueryLengths] = places.query_lengths, data[kKeyLengths] = places.key_lengths;
    write_cudnn_tables(stream, args.layout, places, strides);
    if (is_backward) statistics_to_cudnn(stream, args.lse, places.statistics);
  }
  char* workspace = static_cast<char*>(args.workspace.data) + tables.total;
  if (options.dropout > 0) {
    auto* seed = reinterpret_cast<int64_t*>(workspace);
    write_cudnn_seed(stream, options, args.layout, seed);
    data[kSeed] = seed, data[kSeedOffset] = seed + 1;
    workspace += cudnn_seed_bytes(options);
  }
  for (int64_t column = 0; column < (has_tables ? 1 : b); column += piece.num_columns)
    for (int64_t group = 0; group < g; group += piece.num_groups) {
      for (size_t i = 0; i < views.size(); ++i) {
        if (!tensors.views[i]) continue;
        const int64_t head = is_of_keys(static_cast<int64_t>(i)) ? group : group * heads_per_group;
        data[static_cast<int64_t>(i)] = piece_of(views[i], key.strides[i], column, head);
      }
      library.run(stream, *plan, data, workspace);
    }
  return true;
}

}  // namespace

CudnnState cudnn_state() {
  static const CudnnState state = load();
  return state;
}

bool cudnn_attention_forward(const CudaStream& stream, const AttentionForwardArgs& args) {
  const ConstView o = args.o, lse = args.lse;
  Tensors tensors;
  tensors.views[kQ] = &args.q, tensors.views[kK] = &args.k, tensors.views[kV] = &args.v;
  tensors.views[kO] = &o, tensors.views[kLse] = &lse;
  if (!run(stream, args, tensors, false)) return false;
  if (!has_cudnn_tables(args.layout)) return true;
  const CudnnTablePlaces places(cudnn_tables(args.q, args.layout), args.workspace.data);
  statistics_from_cudnn(stream, places.statistics, args.lse);
  clear_rows_outside_spans(stream, args.layout, args.o, args.lse);
  return true;
}

bool cudnn_attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args) {
  const ConstView grad_q = args.grad_q, grad_k = args.grad_k, grad_v = args.grad_v;
  Tensors tensors;
  tensors.views = {&args.q, &args.k, &args.v, &args.o, &args.grad_o, &grad_q, &grad_k, &grad_v, &args.lse};
  if (!run(stream, args, tensors, true)) return false;
  if (!has_cudnn_tables(args.layout)) return true;
  clear_rows_outside_spans(stream, args.layout, args.grad_q, {});
  clear_rows_outside_keys(stream, args.layout, args.grad_k);
  clear_rows_outside_keys(stream, args.layout, args.grad_v);
  return true;
}

}  // namespace megatron::kernels
