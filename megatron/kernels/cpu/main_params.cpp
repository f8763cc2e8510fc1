#include "megatron/kernels/main_params.h"

#include "megatron/kernels/cpu/main_halves.h"
#include "megatron/kernels/cpu/rows.h"

namespace megatron::kernels {

void split_main_params(const CpuStream& stream, const SplitMainParamsArgs& args) {
  check_main_halves(args.weight, args.remainder);
  const float* main = args.main.as<float>();
  auto *weights = static_cast<uint16_t*>(args.weight.data), *remainders = static_cast<uint16_t*>(args.remainder.data);
  parallel_pieces(stream, 1, args.main.num_elements(), [&](int64_t, int64_t begin, int64_t n) {
    split_halves(main + begin, n, weights + begin, remainders + begin);
  });
}

void join_main_params(const CpuStream& stream, const JoinMainParamsArgs& args) {
  check_main_halves(args.weight, args.remainder);
  const auto* weights = static_cast<const uint16_t*>(args.weight.data);
  const auto* remainders = static_cast<const uint16_t*>(args.remainder.data);
  float* main = args.main.as<float>();
  parallel_pieces(stream, 1, args.main.num_elements(), [&](int64_t, int64_t begin, int64_t n) {
    join_halves(weights + begin, remainders + begin, n, main + begin);
  });
}

}  // namespace megatron::kernels
