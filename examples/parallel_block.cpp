// A model of one's own in one file: GPT-J's layers, in which attention and feed-forward read the same norm and stand
// beside each other (Wang and Komatsuzaki, 2021), with a feed-forward that GeLU gates (GEGLU; Shazeer, 2020,
// arXiv:2002.05202), which no flag asks for. It has every command of megatron:
//   parallel_block pretrain_gpt FLAGS, parallel_block generate FLAGS, parallel_block verify layouts FLAGS
// Tensor, sequence, pipeline and data parallelism, recompute, checkpoints and precisions come with the parts.
#include "commands/program.h"
#include "megatron/ops/bias_dropout_add.h"
#include "megatron/transformer/mlp.h"
#include "megatron/transformer/norm.h"
#include "megatron/transformer/self_attention.h"

using namespace megatron;

namespace {

/// x + attention(norm(x)) + mlp(norm(x)), where mlp(x) = (gelu(x * gate) * (x * up)) * down.
class ParallelBlock : public DecoderLayer {
 public:
  ParallelBlock(const ModuleContext& context, int64_t layer_number)
      : hidden_dropout_(context.config.hidden_dropout), path_(context.path) {
    register_module(input_layernorm_,
                    std::make_unique<Norm>(context.norm_before("input_layernorm", "self_attention.linear_qkv"),
                                           context.config.hidden_size, NormPlace::kResidualStream));
    register_module(self_attention_, std::make_unique<SelfAttention>(context.at("self_attention"), layer_number));
    register_module(
        mlp_, std::make_unique<Mlp>(context.at("mlp"), MlpOptions{.ffn_hidden_size = context.config.ffn_hidden_size,
                                                                  .gated_linear_unit = true,
                                                                  .activation_func = ActivationFunc::kGelu}));
  }

  Tensor forward(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const override {
    const Tensor normed = input_layernorm_->forward(ctx, hidden);
    // Masks of dropout are keyed by these names, so that they depend neither on the layout nor on the order.
    const std::string attention = path_ + ".self_attention.dropout", mlp = path_ + ".mlp.dropout";
    const BlockOutput attended = self_attention_->forward(ctx, normed, inputs);
    const Tensor sum = bias_dropout_add(ctx, attended.output, attended.bias, hidden,
                                        {.rate = hidden_dropout_, .path = attention, .rows = inputs.rows});
    const BlockOutput fed = mlp_->forward(ctx, normed);
    return bias_dropout_add(ctx, fed.output, fed.bias, sum,
                            {.rate = hidden_dropout_, .path = mlp, .rows = inputs.rows});
  }

  std::unique_ptr<LayerState> make_state(const Context& ctx, const LayerStateSizes& sizes) const override {
    return self_attention_->make_state(ctx, sizes);
  }

 private:
  double hidden_dropout_;
  std::string path_;
  std::unique_ptr<Norm> input_layernorm_;
  std::unique_ptr<SelfAttention> self_attention_;
  std::unique_ptr<Mlp> mlp_;
};

}  // namespace

int main(int argc, char** argv) {
  const LayerSpec layers = [](const ModuleContext& context, int64_t layer_number) {
    return std::make_unique<ParallelBlock>(context, layer_number);
  };
  return run_program(argc, argv, {gpt_family(layers)});
}
