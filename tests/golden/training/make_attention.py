#!/usr/bin/env python3
"""Writes what megatron-core 0.16.1 gives for gates on attention's output and for QK-clip, on one CPU process in fp32.

    make_attention.py OUT

extra_gate*: models with attention_output_gate, in the form of models.json. extra_qk_clip*: the largest logit of each head
of a forward pass, computed in fp64 from the queries and keys that the model gave its attention, and the weights after
clip_qk of every layer.
"""
import contextlib, hashlib, json, math, os, sys, warnings

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
warnings.filterwarnings("ignore")
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_num_threads(1)
CPU = torch.device("cpu")


class ToCpu(torch.overrides.TorchFunctionMode):
    """Factories that name a GPU make tensors of the CPU instead."""

    def __torch_function__(self, fn, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = CPU
        return fn(*args, **kwargs)


torch.cuda.current_device = lambda: CPU
torch.Tensor.cuda = lambda self, *a, **k: self
ToCpu().__enter__()

from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import layers, random as parallel_random
from megatron.core.transformer import TransformerConfig, multi_latent_attention
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.transformer_config import MLATransformerConfig

layers.reduce_from_tensor_model_parallel_region = lambda x, group=None: x.clone()
multi_latent_attention.HAVE_TE = False
parallel_random.CudaRNGStatesTracker.fork = lambda self, *a, **k: contextlib.nullcontext()

OUT = sys.argv[1]
LLAMA = dict(normalization="RMSNorm", add_bias_linear=False, activation_func="silu", gated_linear_unit=True)
MLA = dict(rope_type="rope", rotary_base=10000, kv_lora_rank=9, qk_head_dim=8, qk_pos_emb_head_dim=4, v_head_dim=6,
           qk_layernorm=True)


class Attention(DotProductAttention):
    """Notes the largest logit of each head, which Transformer Engine's attention returns, and takes the width of the
    values of multi-latent attention."""

    def __init__(self, *args, k_channels=None, v_channels=None, **kwargs):
        super().__init__(*args, **kwargs)
        if v_channels:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    def forward(self, query, key, value, *args, **kwargs):
        q, k = query.detach().double(), key.detach().double()
        k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
        scores = torch.einsum("sbnd,tbnd->nbst", q, k) * self.softmax_scale
        scores.masked_fill_(torch.ones(q.shape[0], q.shape[0]).triu(1).bool(), -math.inf)
        self.current_max_attn_logits = scores.amax((1, 2, 3)).float()
        return super().forward(query, key, value, *args, **kwargs)


def case(name, batch, model, **config):
    return dict(name=name, mla="kv_lora_rank" in config, config=config, model=model, yarn=None, batch=batch)


def model(vocab, seq, pos="rope", tied=True, **further):
    return dict(vocab_size=vocab, max_sequence_length=seq, position_embedding_type=pos,
                share_embeddings_and_output_weights=tied, **further)


GATED = [
    case("gate_gqa", (2, 13), model(73, 16, rotary_percent=0.5), num_layers=2, hidden_size=36, num_attention_heads=6,
         num_query_groups=2, ffn_hidden_size=28, attention_output_gate=True, add_qkv_bias=True, **LLAMA),
    case("gate_qk_norm", (1, 17), model(61, 17, tied=False), num_layers=2, hidden_size=24, num_attention_heads=4,
         num_query_groups=1, kv_channels=10, ffn_hidden_size=20, attention_output_gate=True, qk_layernorm=True, **LLAMA),
    case("gate_of_every_head", (2, 11), model(53, 11, "learned_absolute"), num_layers=2, hidden_size=24,
         num_attention_heads=3, ffn_hidden_size=22, attention_output_gate=True),
]
CLIPPED = [
    dict(case("qk_clip_gqa", (2, 13), model(73, 16), num_layers=3, hidden_size=36, num_attention_heads=6,
              num_query_groups=3, ffn_hidden_size=28, **LLAMA), threshold=11.0, alpha=0.3),
    dict(case("qk_clip_mla", (2, 11), model(61, 17, tied=False), num_layers=3, hidden_size=24, num_attention_heads=3,
              ffn_hidden_size=20, q_lora_rank=None, **MLA, **LLAMA), threshold=9.0, alpha=0.5),
    dict(case("qk_clip_mla_q_lora", (2, 11), model(61, 17, tied=False), num_layers=3, hidden_size=24,
              num_attention_heads=3, ffn_hidden_size=20, q_lora_rank=7, **MLA, **LLAMA), threshold=9.0, alpha=0.7),
]


def generator(*key):
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


def build(test):
    fields = dict(test["config"], hidden_dropout=0.0, attention_dropout=0.0, transformer_impl="local",
                  params_dtype=torch.float32, bias_activation_fusion=False, bias_dropout_fusion=False)
    if "activation_func" in fields:
        fields["activation_func"] = dict(silu=F.silu)[fields["activation_func"]]
    config = (MLATransformerConfig if test["mla"] else TransformerConfig)(**fields)
    spec = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, multi_latent_attention=test["mla"],
                                    normalization=config.normalization)
    spec.submodules.self_attention.submodules.core_attention = Attention
    return config, GPTModel(config=config, transformer_layer_spec=spec, **test["model"])


def fill(module, gen, scale):
    with torch.no_grad():
        for name, p in module.named_parameters():
            drawn = torch.randn(p.shape, generator=gen)
            is_gamma = name.endswith("weight") and "norm" in name
            p.copy_(1 + 0.2 * drawn if is_gamma else 0.3 * drawn if p.dim() == 1 else
                    drawn * (scale * 0.9 / math.sqrt(p.shape[-1])))


def run(test, prefix, scale):
    config, module = build(test)
    fill(module, generator(test["name"], "weights"), scale)
    gen = generator(test["name"], "batch")
    (b, s), v = test["batch"], test["model"]["vocab_size"]
    text = torch.randint(0, v, (b, s + 1), generator=gen)
    mask = (torch.rand(b, s, generator=gen) > 0.15).float()
    mask[0, 0] = 1
    batch = dict(tokens=text[:, :-1].contiguous(), labels=text[:, 1:].contiguous(), loss_mask=mask)
    seen = []
    module.output_layer.register_forward_hook(lambda m, i, o: seen.append(o[0].detach().transpose(0, 1).clone()))
    losses = module(batch["tokens"], torch.arange(s).unsqueeze(0).expand(b, s).contiguous(), None, labels=batch["labels"])
    mean = (losses * mask).sum() / mask.sum()
    mean.backward()
    row = dict(test, file=f"{prefix}_{test['name']}.safetensors", mean_loss=mean.item(),
               params=[[n, list(p.shape)] for n, p in module.named_parameters()])
    tensors = dict(batch, logits=seen[-1], losses=losses.detach())
    for name, p in module.named_parameters():
        tensors["param/" + name] = p.detach().clone()
        tensors["grad/" + name] = p.grad
    return config, module, row, tensors


def gated(test):
    _, _, row, tensors = run(test, "extra", 1.0)
    return row, tensors


def clipped(test):
    """A forward pass, then clip_qk of each layer."""
    config, module, row, tensors = run(test, "extra", 2.0)
    config.qk_clip, config.qk_clip_threshold, config.qk_clip_alpha = True, test["threshold"], test["alpha"]
    blocks = [layer.self_attention for layer in module.decoder.layers]
    tensors["max_logits"] = torch.stack([block.core_attention.current_max_attn_logits for block in blocks])
    for block in blocks:
        block.cache_mla_latents = False
        with torch.no_grad():
            block.clip_qk()
    for name, p in module.named_parameters():
        if not torch.equal(p.detach(), tensors["param/" + name]):
            tensors["clipped/" + name] = p.detach()
    print(test["name"], tensors["max_logits"].tolist(), [n for n in tensors if n.startswith("clipped/")])
    return row, tensors


torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
parallel_state.initialize_model_parallel()
for file, function, tests in (("extra_gate_models.json", gated, GATED), ("extra_qk_clip_models.json", clipped, CLIPPED)):
    rows = []
    for test in tests:
        row, tensors = function(test)
        save_file({k: v.clone().contiguous() for k, v in tensors.items()}, os.path.join(OUT, row["file"]))
        rows.append(row)
    with open(os.path.join(OUT, file), "w") as f:
        json.dump(dict(cases=rows), f, separators=(",", ":"))
        f.write("\n")
