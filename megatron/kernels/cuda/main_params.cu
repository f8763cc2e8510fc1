#include "megatron/kernels/main_params.h"

#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/main_halves.cuh"

namespace megatron::kernels {
namespace {

template <class From, class To>
struct Move {
  From from;
  To to;
  __device__ void operator()(int64_t, int64_t begin, int n) const {
    store(to, begin, n, convert(load_raw(from, begin, n)));
  }
};

View writable(const ConstView& x) {
  return {const_cast<void*>(x.data), x.dtype, x.shape, x.strides, x.count, x.is_bounded};
}

}  // namespace

void split_main_params(const CudaStream& stream, const SplitMainParamsArgs& args) {
  args.main.as<float>();
  for_each_pack(stream, "split_main_params", Extent::flat(args.main),
                Move{Operand(args.main), MainHalves(args.weight, args.remainder)});
}

void join_main_params(const CudaStream& stream, const JoinMainParamsArgs& args) {
  args.main.as<float>();
  for_each_pack(stream, "join_main_params", Extent::flat(args.main),
                Move{MainHalves(writable(args.weight), writable(args.remainder)), Operand(args.main)});
}

}  // namespace megatron::kernels
