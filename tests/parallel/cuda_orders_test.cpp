// How far a run in bf16 on a GPU departs from the CPU's: no further than other orders of the same sums do on the CPU.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "megatron/core/cuda_devices.h"
#include "tests/parallel/summation_orders.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 10;

double last_loss_on_gpu(const std::string& words) {
  Trainer trainer(small_config(words), {.device = DeviceKind::kCuda});
  return train(trainer, 0, kSteps).back();
}

TEST(CudaOrders, InBf16TheGpuDepartsNoMoreThanOrdersOfSummationDo) {
  const CudaDevices gpus = find_cuda_devices();
  if (gpus.devices.empty()) GTEST_SKIP() << "no GPU answers: " << gpus.problem;
  const std::string sizes =
      "--lr 1e-3 --num-layers 4 --global-batch-size 24 --hidden-dropout 0 --attention-dropout 0 --bf16";
  for (const std::string& words : {gpt2_like(sizes), llama_like(sizes)}) {
    SCOPED_TRACE(words);
    const OrdersOfSummation orders = eight_orders(words, kSteps);
    const double departure = std::abs(last_loss_on_gpu(words) - orders.middle());
    fmt::print("loss {:.6f} after {} steps, spread of eight orders {:.1e}, the GPU departs {:.2f} of it\n",
               orders.middle(), kSteps, orders.spread(), departure / orders.spread());
    EXPECT_GT(orders.spread(), 0);
    EXPECT_LT(orders.spread(), epsilon(DType::kBFloat16) * orders.middle());
    EXPECT_LE(departure, 2 * orders.spread());
  }
}

}  // namespace
}  // namespace megatron::testing
