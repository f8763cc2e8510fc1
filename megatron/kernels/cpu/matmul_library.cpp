#include "megatron/kernels/cpu/matmul_library.h"

#include <omp.h>

#include <array>
#include <memory>
#include <string_view>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include "megatron/core/random.h"
#include "megatron/kernels/cpu/instruction_set.h"

namespace megatron::kernels {
namespace {

using dnnl::memory;

struct MatmulShapeHash {
  size_t operator()(const MatmulShape& s) const {
    uint64_t hash = 0;
    const auto add = [&](auto value) { hash = RandomKey::mix(hash ^ static_cast<uint64_t>(value)); };
    for (int64_t size : {s.m, s.n, s.k, s.a_stride, s.b_stride, s.c_stride}) add(size);
    const auto dtypes =
        static_cast<uint64_t>(s.a) << 16 | static_cast<uint64_t>(s.c) << 8 | static_cast<uint64_t>(s.bias);
    add(dtypes << 32 | static_cast<uint64_t>(s.num_threads) << 4 | uint64_t{s.has_bias} << 3 |
        uint64_t{s.transpose_a} << 2 | uint64_t{s.transpose_b} << 1 | uint64_t{s.accumulate});
    return hash;
  }
};

memory::data_type data_type(DType dtype) {
  if (dtype == DType::kBFloat16) return memory::data_type::bf16;
  return dtype == DType::kFloat32 ? memory::data_type::f32 : memory::data_type::undef;
}

memory::desc matrix(int64_t rows, int64_t columns, DType dtype, int64_t stride, bool transposed) {
  return {{rows, columns}, data_type(dtype), transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

/// oneDNN offers its batch-reduce kernels first, and `gemm`, which packs both operands, second. `gemm`
/// is faster if b is not transposed, or from about a thousand rows on (docs/decisions/0007).
bool prefers_classic_product(const MatmulShape& s) {
  constexpr int64_t kManyRows = 1024;
  return s.a == DType::kFloat32 && (!s.transpose_b || s.m >= kManyRows);
}

/// The implementation that oneDNN offers first, or its `gemm` if that is requested and there is one. `make`
/// gives the first one; empty if there is none.
template <class Make>
auto choose(bool classic, Make&& make) {
  auto first = make();
  if (!classic || !first.get(true)) return first;
  auto other = make();
  do {
    if (std::string_view(other.impl_info_str()).starts_with("gemm")) return other;
  } while (other.next_impl());
  return first;
}

/// oneDNN's primitive for a matmul; empty if it has no kernel. oneDNN 2 (Debian 12) describes a matmul separately from
/// its engine and attributes, and reads that description when it advances to the next implementation; oneDNN 3 (Ubuntu
/// 24.04) describes all together.
template <class Matmul>
typename Matmul::primitive_desc describe(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                                         const memory::desc* bias, const memory::desc& c,
                                         const dnnl::primitive_attr& attributes, bool classic) {
  using Description = typename Matmul::primitive_desc;
  constexpr bool kAllowEmpty = true;
  if constexpr (requires { typename Matmul::desc; }) {
    using Product = typename Matmul::desc;
    const Product product = bias ? Product(a, b, *bias, c) : Product(a, b, c);
    return choose(classic, [&] { return Description(product, attributes, engine, kAllowEmpty); });
  } else {
    return choose(classic, [&] {
      return bias ? Description(engine, a, b, *bias, c, attributes, kAllowEmpty)
                  : Description(engine, a, b, c, attributes, kAllowEmpty);
    });
  }
}

/// A matmul with its memory objects, whose data pointers are set for each call, so that calls do not allocate.
class MatmulPlan {
 public:
  MatmulPlan(const dnnl::engine& engine, const MatmulShape& s) {
    const memory::desc a = matrix(s.m, s.k, s.a, s.a_stride, s.transpose_a);
    const memory::desc b = matrix(s.k, s.n, s.a, s.b_stride, s.transpose_b);
    const memory::desc c = matrix(s.m, s.n, s.c, s.c_stride, false);
    const memory::desc bias = matrix(1, s.n, s.bias, s.n, false);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1);
      attributes.set_post_ops(sum);
    }
    const auto description =
        describe<dnnl::matmul>(engine, a, b, s.has_bias ? &bias : nullptr, c, attributes, prefers_classic_product(s));
    if (!description.get(true) || std::string_view(description.impl_info_str()).starts_with("ref")) return;
    workspace_bytes_ = static_cast<int64_t>(description.scratchpad_desc().get_size());
    memories_ = {memory(a, engine, DNNL_MEMORY_NONE), memory(b, engine, DNNL_MEMORY_NONE),
                 memory(c, engine, DNNL_MEMORY_NONE), memory(description.scratchpad_desc(), engine, DNNL_MEMORY_NONE),
                 s.has_bias ? memory(bias, engine, DNNL_MEMORY_NONE) : memory()};
    constexpr std::array kArguments = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD,
                                       DNNL_ARG_BIAS};
    for (size_t i = 0; i < kArguments.size(); ++i) arguments_[i] = {kArguments[i], memories_[i].get(true)};
    primitive_ = dnnl::matmul(description);
  }

  bool is_available() const { return primitive_.get(true) != nullptr; }
  int64_t workspace_bytes() const { return workspace_bytes_; }

  /// Not const: concurrent calls would share the memory objects. Each device has its own plans.
  void execute(dnnl::stream& stream, const MatmulData& data) {
    const std::array<const void*, 5> pointers = {data.a, data.b, data.c, data.workspace, data.bias};
    const size_t count = memories_.back().get(true) ? 5 : 4;
    for (size_t i = 0; i < count; ++i) memories_[i].set_data_handle(const_cast<void*>(pointers[i]));
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_.get(), stream.get(), static_cast<int>(count), arguments_.data());
    require<DeviceError>(status == dnnl_success, "[matmul] oneDNN failed with status {}.", static_cast<int>(status));
  }

 private:
  dnnl::primitive primitive_;
  std::array<memory, 5> memories_;
  std::array<dnnl_exec_arg_t, 5> arguments_{};
  int64_t workspace_bytes_ = 0;
};

/// Matmuls by shape, for one device. With bounded and varying shapes their number could grow forever, so a
/// full cache is cleared.
class OneDnnHandles final : public LibraryHandles {
 public:
  MatmulPlan& plan(const MatmulShape& shape) {
    const auto found = plans_.find(shape);
    if (found != plans_.end()) return found->second;
    if (plans_.size() >= kMaxPlans) plans_.clear();
    return plans_.try_emplace(shape, engine_, shape).first->second;
  }
  dnnl::stream& stream() { return stream_; }

 private:
  static constexpr size_t kMaxPlans = 4096;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unordered_map<MatmulShape, MatmulPlan, MatmulShapeHash> plans_;
};

/// The handles of the stream's device, with the calling thread's team set to the stream's size: oneDNN takes the number
/// of threads from OpenMP, when a matmul is made and when it runs.
OneDnnHandles& handles_of(const CpuStream& stream) {
  require(stream.libraries, "[matmul] a CpuStream needs a slot for library handles.");
  if (!*stream.libraries) *stream.libraries = std::make_unique<OneDnnHandles>();
  auto* handles = dynamic_cast<OneDnnHandles*>(stream.libraries->get());
  require(handles, "[matmul] the slot of the CpuStream holds the handles of another library.");
  omp_set_num_threads(stream.num_threads);
  return *handles;
}

}  // namespace

bool library_has_matmul(const CpuStream& stream, const MatmulShape& shape) {
  const bool has_dtype = shape.a == DType::kFloat32 || (shape.a == DType::kBFloat16 && has_bf16_instructions());
  return has_dtype && handles_of(stream).plan(shape).is_available();
}

int64_t library_matmul_workspace_bytes(const CpuStream& stream, const MatmulShape& shape) {
  return handles_of(stream).plan(shape).workspace_bytes();
}

void library_matmul(const CpuStream& stream, const MatmulShape& shape, const MatmulData& data) {
  OneDnnHandles& handles = handles_of(stream);
  handles.plan(shape).execute(handles.stream(), data);
}

bool library_rows_are_independent(DType dtype) {
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16) return false;
  const auto needed =
      static_cast<unsigned>(dtype == DType::kBFloat16 ? dnnl::cpu_isa::avx512_core_bf16 : dnnl::cpu_isa::avx512_core);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
}

}  // namespace megatron::kernels
