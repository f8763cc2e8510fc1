#include "megatron/bench/transformer_engine.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/bench/peer_timing.h"
#include "tests/bench/fake_transformer_engine.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using testing::FakeTransformerEngine;
using testing::gpt2_like;
using ::testing::HasSubstr;
using testing::llama_like;

/// The stand-in, in its first state again at the end.
class TransformerEngineTest : public ::testing::Test {
 protected:
  ~TransformerEngineTest() override { fake() = FakeTransformerEngine{.num_tensors = fake().num_tensors}; }
  static FakeTransformerEngine& fake() {
    static void* library = dlopen(FAKE_TRANSFORMER_ENGINE, RTLD_NOW);
    return *reinterpret_cast<FakeTransformerEngine* (*)()>(dlsym(library, "fake_transformer_engine"))();
  }
  static std::string reason_against(const std::string& file) {
    try {
      const TransformerEngine engine(file);
    } catch (const NotSupported& error) {
      return error.what();
    }
    return "";
  }
  static PeerTimings peers_of(const std::string& words) {
    BenchDevice bench(DeviceKind::kCpu, 1);
    const TransformerEngine engine(FAKE_TRANSFORMER_ENGINE);
    SilentProgress silent;
    const MeasureOptions quick{.warm_ups = 1, .repeats = 3, .seconds = 1e-6};
    const KernelCeiling ceiling =
        measure_ceiling(testing::small_config(words), {KernelKind::kMemory}, bench, quick, silent);
    return measure_peers(ceiling, bench, engine, quick, silent);
  }
};

TEST_F(TransformerEngineTest, IsLoadedFromTheGivenPath) {
  const TransformerEngine engine(FAKE_TRANSFORMER_ENGINE);
  EXPECT_EQ(engine.path(), FAKE_TRANSFORMER_ENGINE);
  EXPECT_EQ(engine.num_multiprocessors(), 7);
}

TEST_F(TransformerEngineTest, AMissingLibraryIsReportedWithHowToGetIt) {
  EXPECT_THAT(reason_against("/nowhere/libtransformer_engine.so"),
              AllOf(HasSubstr("/nowhere/libtransformer_engine.so: cannot open shared object file"),
                    HasSubstr("pip download --no-deps transformer_engine_cu13==2.20.2"),
                    HasSubstr("--transformer-engine transformer_engine/wheel_lib/libtransformer_engine.so")));
}

TEST_F(TransformerEngineTest, ALibraryWithoutAFunctionIsRejectedNamingIt) {
  dlopen(FAKE_TRANSFORMER_ENGINE, RTLD_NOW | RTLD_GLOBAL);  // stands for NVRTC's library too
  EXPECT_THAT(reason_against("libm.so.6"),
              HasSubstr("libm.so.6 has no nvte_create_tensor: it is not of Transformer Engine 2.20"));
  const TransformerEngine engine(FAKE_TRANSFORMER_ENGINE);
  EXPECT_THROW(engine.activation(kernels::Activation::kSquaredRelu, false), NotSupported);
  EXPECT_THROW(engine.activation(kernels::Activation::kGelu, false), NotSupported);
}

TEST_F(TransformerEngineTest, ALibraryWithOtherTensorsIsRejected) {
  fake().misreads_sizes = true;
  EXPECT_THAT(reason_against(FAKE_TRANSFORMER_ENGINE),
              AllOf(HasSubstr("does not understand a tensor of Transformer Engine 2.20"), HasSubstr("5 dimensions")));
  fake().refusal = "Buffer is too small for tensor parameter";
  EXPECT_THAT(reason_against(FAKE_TRANSFORMER_ENGINE), HasSubstr("2.20: Buffer is too small for tensor parameter"));
  EXPECT_EQ(fake().num_tensors, 0);
}

TEST_F(TransformerEngineTest, IsTimedIfTheResultsAreTheSame) {
  const PeerTimings llama = peers_of(llama_like());
  for (const char* name : {"rms norm forward", "rms norm backward", "final norm forward", "final norm backward",
                           "gated activation forward", "gated activation backward", "rope forward", "rope backward",
                           "Adam", "gradient norm"}) {
    SCOPED_TRACE(name);
    const auto found = llama.find(name);
    ASSERT_NE(found, llama.end());
    const PeerTiming& peer = found->second;
    EXPECT_TRUE(peer.is_right()) << peer.error << " " << peer.result << " " << peer.difference;
    EXPECT_GT(peer.timing.best, 0);
    EXPECT_EQ(peer.timing.num_calls, 3);
  }
  EXPECT_FALSE(llama.contains("cross entropy forward"));
  const PeerTimings normed = peers_of(llama_like("--qk-layernorm"));
  for (const char* name : {"query norm forward", "key norm backward", "rope forward", "rope backward"})
    EXPECT_TRUE(normed.at(name).is_right())
        << name << " " << normed.at(name).result << " " << normed.at(name).difference;
  const PeerTimings gpt2 = peers_of(gpt2_like());
  for (const char* name : {"layer norm forward", "layer norm backward", "final norm backward"})
    EXPECT_TRUE(gpt2.at(name).is_right()) << name << " " << gpt2.at(name).result << " " << gpt2.at(name).difference;
  EXPECT_EQ(fake().num_tensors, 0);
}

TEST_F(TransformerEngineTest, IsNotTimedIfTheResultsDiffer) {
  fake().is_wrong = true;
  const PeerTiming peer = peers_of(llama_like()).at("gated activation forward");
  EXPECT_FALSE(peer.is_right());
  EXPECT_EQ(peer.result, "y");
  EXPECT_GT(peer.difference, 100);
}

TEST_F(TransformerEngineTest, AnErrorOfOneOpIsReportedAndTheOthersAreTimed) {
  fake().fails = true;
  const PeerTimings peers = peers_of(llama_like());
  EXPECT_EQ(peers.at("rms norm backward").error, "Assertion failed: the stand-in was told to fail.");
  EXPECT_FALSE(peers.at("rms norm backward").is_right());
  EXPECT_TRUE(peers.at("rms norm forward").is_right());
  EXPECT_EQ(fake().num_tensors, 0);
}

}  // namespace
}  // namespace megatron
