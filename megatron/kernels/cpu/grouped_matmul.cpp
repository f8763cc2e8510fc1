#include "megatron/kernels/grouped_matmul.h"

#include "megatron/kernels/matmul.h"

namespace megatron::kernels {
namespace {

/// Rows from `begin` on, of which `count` are meant: bounded, so that matmul prepares few sizes and not each one.
template <class AnyView>
AnyView rows_from(AnyView x, int64_t begin, const int32_t* count) {
  if (x.data) {
    using Byte =
        std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(x.data)>>, const std::byte, std::byte>;
    x.data = static_cast<Byte*>(x.data) + begin * x.strides[0] * size_of(x.dtype);
  }
  x.shape[0] -= begin;
  x.count = count;
  x.is_bounded = true;
  return x;
}

/// Matrix `group` of a stack of them.
template <class AnyView>
AnyView matrix_of(const AnyView& stack, int64_t group) {
  AnyView matrix = rows_from(stack, stack.data ? group : 0, nullptr);
  matrix.shape = {stack.shape[1], stack.shape[2]};
  matrix.strides = {stack.strides[1], stack.strides[2]};
  matrix.is_bounded = false;
  return matrix;
}

MatmulArgs product_of(const GroupedMatmulArgs& args, int64_t group, int64_t begin, const int32_t* count) {
  return {.a = rows_from(args.a, begin, count),
          .b = matrix_of(args.b, group),
          .c = rows_from(args.c, begin, count),
          .transpose_b = args.transpose_b,
          .workspace = args.workspace};
}
MatmulArgs product_of(const GroupedWgradArgs& args, int64_t group, int64_t begin, const int32_t* count) {
  return {.a = rows_from(args.a, begin, count),
          .b = rows_from(args.b, begin, count),
          .c = matrix_of(args.c, group),
          .transpose_a = true,
          .accumulate = args.accumulate,
          .workspace = args.workspace};
}

template <class Args>
void run_groups(const CpuStream& stream, const Args& args) {
  for (int64_t group = 0; group < args.groups.num_groups; ++group) {
    const int64_t begin = args.groups.begin(group);
    const auto count = static_cast<int32_t>(args.groups.end(group) - begin);
    matmul(stream, product_of(args, group, begin, &count));
  }
}

}  // namespace

void grouped_matmul(const CpuStream& stream, const GroupedMatmulArgs& args) { run_groups(stream, args); }
void grouped_wgrad(const CpuStream& stream, const GroupedWgradArgs& args) { run_groups(stream, args); }

int64_t grouped_matmul_workspace_bytes(const CpuStream& stream, const GroupedMatmulArgs& args) {
  return matmul_workspace_bytes(stream, product_of(args, 0, 0, nullptr));
}
int64_t grouped_wgrad_workspace_bytes(const CpuStream& stream, const GroupedWgradArgs& args) {
  return matmul_workspace_bytes(stream, product_of(args, 0, 0, nullptr));
}

}  // namespace megatron::kernels
