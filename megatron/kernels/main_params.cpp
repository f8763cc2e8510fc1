#include "megatron/kernels/main_params.h"

namespace megatron::kernels {

void check_main_halves(const ConstView& weight, const ConstView& remainder) {
  require<DtypeError>(weight.dtype == DType::kBFloat16 && remainder.dtype == DType::kUInt8,
                      "[main_params] a weight in {} with a remainder in {}: they must be bfloat16 and uint8.",
                      weight.dtype, remainder.dtype);
  require<ShapeError>(weight.shape.rank() == 1 && remainder.shape == Shape{weight.shape[0], 2} &&
                          weight.is_contiguous() && remainder.is_contiguous(),
                      "[main_params] a weight {} with a remainder {}: they must be contiguous, [n] and [n, 2].",
                      weight.shape, remainder.shape);
}

void check_rounded_main(const ConstView& model_weight) {
  require<DtypeError>(!model_weight.defined(),
                      "[main_params] main parameters in bfloat16 beside weights in {}: they are the weights of a "
                      "bfloat16 model. Choose float32.",
                      model_weight.dtype);
}

}  // namespace megatron::kernels
