// Size, norms, feed-forward, initialisation, recompute.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

void describe_size(FieldTable& table, PretrainConfig& config) {
  ModelConfig& model = config.model;
  TransformerConfig& net = config.transformer;
  table.begin_group("Size of the model",
                    "A GPT model is an embedding, --num-layers equal layers (attention, then feed-forward) and an "
                    "output layer. GPT-2 124M: --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length "
                    "1024 --max-position-embeddings 1024");
  table.add("num_layers", model.num_layers, "layers; required")
      .at_least(1)
      .taken_from_checkpoint(StoredValue::kTakenIfNotSet)
      .known_as("layers n-layers n-layer nlayers num-layer num-hidden-layers depth");
  table.add("encoder_num_layers", model.encoder_num_layers, "old name of --num-layers").at_least(1);
  table.add("hidden_size", model.hidden_size, "width h of the residual stream; required")
      .at_least(1)
      .taken_from_checkpoint(StoredValue::kTakenIfNotSet)
      .known_as(
          "hidden hidden-dim hidden-dims d-model dmodel dim model-dim n-embd embed-dim embedding-dim embedding-size "
          "width");
  table.add("num_attention_heads", model.num_attention_heads, "query heads; required")
      .at_least(1)
      .taken_from_checkpoint(StoredValue::kTakenIfNotSet)
      .known_as("heads n-heads n-head nheads num-heads num-attn-heads");
  table.add("ffn_hidden_size", model.ffn_hidden_size, "width of the feed-forward")
      .by_default("4 * --hidden-size; with --swiglu 8/3 * --hidden-size, rounded down to a multiple of 64")
      .at_least(1)
      .taken_from_checkpoint(StoredValue::kTakenIfNotSet)
      .known_as("ffn ffn-dim ffn-size d-ff intermediate-size mlp-dim mlp-size mlp-hidden-size feedforward-size");
  table.add("kv_channels", model.kv_channels, "size of a head")
      .by_default("--hidden-size / --num-attention-heads")
      .at_least(1)
      .needs("self attention, not --multi-latent-attention", [&net] { return !net.mla; })
      .taken_from_checkpoint(StoredValue::kTakenIfNotSet)
      .known_as("head-dim head-size d-head");
  table.add("group_query_attention", model.group_query_attention, "let several query heads share a key and value head")
      .taken_from_checkpoint()
      .known_as("gqa grouped-query-attention");
  table.add("num_query_groups", model.num_query_groups, "key and value heads; turns --group-query-attention on")
      .at_least(1)
      .taken_from_checkpoint()
      .differs({.megatron = "ignores it without --group-query-attention, and trains a key and value head for each head",
                .ours = "means grouped-query attention, with or without --group-query-attention",
                .in_force =
                    [&config] {
                      return config.given.contains("num_query_groups") &&
                             !config.given.contains("group_query_attention") &&
                             config.transformer.num_query_groups != config.transformer.num_attention_heads;
                    }})
      .known_as("kv-heads n-kv-heads num-kv-heads num-key-value-heads");
  table.add("seq_length", model.seq_length, "tokens of a training sequence; required")
      .at_least(1)
      .taken_from_checkpoint(StoredValue::kTakenIfNotSet)
      .known_as(
          "seq-len seqlen ctx sequence-length sequence-len context-length context-size context block-size "
          "max-seq-len "
          "max-seq-length max-sequence-length n-ctx ctx-len");
  table.add("encoder_seq_length", model.encoder_seq_length, "old name of --seq-length").at_least(1);
  table.add("decoder_seq_length", model.decoder_seq_length, "of encoder-decoder models; checked only")
      .at_least(1)
      .without_effect("GPT has no encoder; it is only checked against --max-position-embeddings");
  table.add("max_position_embeddings", model.max_position_embeddings, "longest sequence; required")
      .at_least(1)
      .taken_from_checkpoint(StoredValue::kTakenIfNotSet)
      .known_as("max-positions max-position n-positions max-position-embedding");
  table
      .add("untie_embeddings_and_output_weights", model.untie_embeddings_and_output_weights,
           "give the output layer weights of its own")
      .gives_weights_meaning()
      .known_as("untie-embeddings no-tie-embeddings untie-weights");
  table.add_derived("params_dtype", net.params_dtype, "of the weights");
}

void describe_norms(FieldTable& table, PretrainConfig& config) {
  TransformerConfig& net = config.transformer;
  table.begin_group("Norms, biases, residual",
                    "Llama-like models use --normalization RMSNorm --disable-bias-linear, GPT-2 the defaults.");
  table.add("normalization", net.normalization, "of every layer and at the end")
      .gives_weights_meaning()
      .known_as("rmsnorm rms-norm norm");
  table
      .add("layernorm_placement", net.layernorm_placement,
           "norms in front of attention and feed-forward (pre), behind them too (sandwich, as in Gemma 2 and 3), or "
           "behind them alone (post, as in OLMo 2) (megatron.cpp only)")
      .gives_weights_meaning()
      .known_as("post-norm sandwich-norm")
      .such_as("--disable-bias-linear --layernorm-placement sandwich");
  table.add("layernorm_epsilon", net.layernorm_epsilon, "added to the variance")
      .named({"--norm-epsilon"})
      .above(0)
      .gives_weights_meaning()
      .also_stored_as("norm_epsilon")
      .known_as("eps epsilon");
  table.add("layernorm_zero_centered_gamma", net.layernorm_zero_centered_gamma, "store gamma as gamma - 1")
      .named({"--apply-layernorm-1p"})
      .gives_weights_meaning()
      .also_stored_as("apply_layernorm_1p");
  table.add("add_bias_linear", net.add_bias_linear, "drop the biases of all linear layers")
      .turned_off_by({"--disable-bias-linear"})
      .gives_weights_meaning()
      .known_as("no-bias disable-bias");
  table.add("add_qkv_bias", net.add_qkv_bias, "keep the biases of query, key and value")
      .gives_weights_meaning()
      .needs("--disable-bias-linear", [&net] { return !net.add_bias_linear; })
      .such_as("--disable-bias-linear --add-qkv-bias");
  table
      .add("fp32_residual_connection", net.fp32_residual_connection,
           "keep the residual stream in fp32; needs --bf16 or --fp16")
      .such_as("--bf16 --fp32-residual-connection");
}

void describe_feed_forward(FieldTable& table, PretrainConfig& config) {
  ModelConfig& model = config.model;
  TransformerConfig& net = config.transformer;
  table.begin_group("Feed-forward",
                    "One activation at a time; none of these flags: GELU, in Megatron's tanh form while biases are on "
                    "and --no-bias-gelu-fusion is not given, else in the exact erf form.");
  table.add("swiglu", model.swiglu, "silu(gate) * up").gives_weights_meaning();
  table.add("geglu", model.geglu, "gelu(gate) * up, with GELU in the tanh form (megatron.cpp only)")
      .gives_weights_meaning();
  table.add("quick_geglu", model.quick_geglu, "gate * sigmoid(1.702 gate) * up")
      .gives_weights_meaning()
      .differs({.megatron = "takes the second",
                .ours = "rejected: one activation at a time",
                .topic = "--quick-geglu --squared-relu"});
  table.add("squared_relu", model.squared_relu, "max(x, 0)^2")
      .gives_weights_meaning()
      .such_as("--disable-bias-linear --squared-relu");
  table.add("openai_gelu", model.openai_gelu, "GELU in the tanh form").gives_weights_meaning();
  table.add("bias_gelu_fusion", model.bias_gelu_fusion, "use the exact erf form of GELU with biases")
      .turned_off_by({"--no-bias-gelu-fusion"})
      .gives_weights_meaning();
  table.add("glu_linear_offset", net.glu_linear_offset, "added to the linear half of a gated activation")
      .gives_weights_meaning()
      .needs("--swiglu, --geglu or --quick-geglu", [&config] { return config.transformer.gated_linear_unit; })
      .such_as("--swiglu --glu-linear-offset 1");
  table
      .add("activation_func_clamp_value", net.activation_func_clamp_value,
           "limit c of a gated activation's inputs: gate at most c, up between -c and c")
      .above(0)
      .gives_weights_meaning()
      .needs("--swiglu, --geglu or --quick-geglu", [&config] { return config.transformer.gated_linear_unit; })
      .such_as("--swiglu --activation-func-clamp-value 7");
}

void describe_multipliers(FieldTable& table, PretrainConfig& config) {
  TransformerConfig& net = config.transformer;
  table.begin_group("Multipliers and soft caps",
                    "What Gemma and Granite multiply and bound between their layers; 1 and none: nothing.");
  const auto add = [&](std::string_view name, auto& value, std::string_view help) -> Field& {
    return table.add(name, value, help).above(0).gives_weights_meaning();
  };
  add("embedding_multiplier", net.embedding_multiplier,
      "factor of the embedding's output, rounded to the precision of the weights; Gemma's is the square root of "
      "--hidden-size (megatron.cpp only)")
      .known_as("embedding-scale");
  add("residual_multiplier", net.residual_multiplier,
      "factor of the output of attention and feed-forward before the residual sum (megatron.cpp only)")
      .such_as("--disable-bias-linear --residual-multiplier 0.22");
  add("logits_multiplier", net.logits_multiplier,
      "factor of the logits: 1 / logits_scaling of a Granite (megatron.cpp only)")
      .known_as("logits-scaling");
  add("final_logit_softcapping", net.final_logit_softcapping,
      "bend logits towards C and -C, C * tanh(logit / C), as Gemma 2 does (megatron.cpp only)")
      .by_default("none")
      .known_as("logits-softcap final-softcap soft-cap");
}

void describe_further_tokens(FieldTable& table, PretrainConfig& config) {
  table.begin_group("Multi-token prediction",
                    "Layers behind the decoder that each predict one token further, as in DeepSeek-V3; they train the "
                    "hidden states and are left out by megatron generate.");
  table.add("mtp_num_layers", config.model.mtp_num_layers, "further tokens that are predicted, with a layer for each")
      .by_default("none")
      .at_least(1)
      .gives_weights_meaning()
      .differs({.megatron = "logs the share of further tokens that are the most probable ones, too",
                .ours = "logs their losses alone",
                .in_force = [&config] { return config.transformer.mtp.num_layers > 0; }})
      .differs({.megatron = "with --context-parallel-size each rank divides the loss of further tokens by its own "
                            "number of them",
                .ours = "divides it by that of all context-parallel ranks, so that it does not depend on their number",
                .in_force =
                    [&config] {
                      return config.transformer.mtp.num_layers > 0 && config.parallel.context_parallel_size > 1;
                    }})
      .known_as("mtp num-nextn-predict-layers")
      .such_as("--position-embedding-type rope --mtp-num-layers 1");
  table
      .add("mtp_loss_scaling_factor", config.transformer.mtp.loss_scaling_factor,
           "factor of the mean of their losses in the training loss")
      .at_least(0)
      .needs("--mtp-num-layers", [&config] { return config.transformer.mtp.num_layers > 0; })
      .such_as("--position-embedding-type rope --mtp-num-layers 1 --mtp-loss-scaling-factor 0.3");
}

void describe_initialisation(FieldTable& table, PretrainConfig& config) {
  ModelConfig& model = config.model;
  TransformerConfig& net = config.transformer;
  table.begin_group("Dropout and initialisation",
                    "Initial weights and dropout masks depend on --seed and on the weight's name alone, never on how "
                    "the work is split.");
  table.add("hidden_dropout", net.hidden_dropout, "rate behind embedding, attention and feed-forward")
      .at_least(0)
      .below(1)
      .taken_from_checkpoint()
      .known_as("dropout");
  table.add("attention_dropout", net.attention_dropout, "rate on attention probabilities")
      .at_least(0)
      .below(1)
      .taken_from_checkpoint()
      .differs({.megatron = "the mask is that of the library and of the layout",
                .ours =
                    "the mask is the same on any layout and device, by our own kernels, unless "
                    "--cudnn-attention-dropout is given: then it depends on tensor parallelism and on micro-batches",
                .in_force =
                    [&config] {
                      return config.transformer.cudnn_attention_dropout && config.transformer.attention_dropout > 0;
                    }})
      .known_as("dropout");
  table
      .add("cudnn_attention_dropout", net.cudnn_attention_dropout,
           "on a GPU, cuDNN drops attention probabilities, faster than the kernels that draw the same mask "
           "on any layout (megatron.cpp only): the mask then depends on tensor parallelism and on micro-batches")
      .needs("--attention-dropout above 0", [&config] { return config.transformer.attention_dropout > 0; })
      .such_as("--bf16 --cudnn-attention-dropout");
  table
      .add("init_method_std", net.init_method_std,
           "of normal initial weights; the last linear of attention and of feed-forward use it / sqrt(2 layers)")
      .at_least(0);
  table.add("embedding_init_method_std", model.embedding_init_method_std, "of embeddings")
      .by_default("--init-method-std")
      .at_least(0);
  table.add("perform_initialization", net.perform_initialization, "leave weights at zero; for loading")
      .turned_off_by({"--no-initialization"});
}

void describe_recompute(FieldTable& table, PretrainConfig& config) {
  ModelConfig& model = config.model;
  TransformerConfig& net = config.transformer;
  const auto recomputes_layers = [&net] { return net.recompute_granularity == RecomputeGranularity::kFull; };
  table.begin_group("Recompute",
                    "Saves memory by computing activations again in the backward pass; results stay the same bit for "
                    "bit. Start with --recompute-activations; if that is not enough: --recompute-granularity full "
                    "--recompute-method uniform --recompute-num-layers 1");
  table.add("recompute_activations", model.recompute_activations, "the same as --recompute-granularity selective")
      .known_as("recompute gradient-checkpointing activation-checkpointing activation-recomputation");
  table.add("recompute_granularity", net.recompute_granularity,
            "whole layers, or the parts that cost little to repeat");
  table
      .add("recompute_method", net.recompute_method,
           "full: every layer in units (uniform), or only the first layers of a stage (block)")
      .needs("--recompute-granularity full", recomputes_layers)
      .such_as("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  table.add("recompute_num_layers", model.recompute_num_layers, "layers of a unit, or layers that are recomputed")
      .at_least(1)
      .needs("--recompute-granularity full", recomputes_layers)
      .such_as("--recompute-granularity full --recompute-method block --recompute-num-layers 2");
  table
      .add("recompute_modules", net.recompute_modules,
           "selective: which parts. layernorm drops the output of each layer's two norms, which the "
           "linear behind it then computes again from the norm's input; mla_up_proj drops the queries, keys and values "
           "of latent attention, which are computed again from the latent vectors")
      .by_default("core_attn")
      .later({"gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc"})
      .such_as("--recompute-granularity selective --recompute-modules core_attn layernorm");
}

}  // namespace

void describe_model(FieldTable& table, PretrainConfig& config) {
  describe_size(table, config);
  describe_norms(table, config);
  describe_feed_forward(table, config);
  describe_multipliers(table, config);
  describe_experts(table, config);
  describe_further_tokens(table, config);
  describe_attention(table, config);
  describe_initialisation(table, config);
  describe_recompute(table, config);
}

}  // namespace megatron
