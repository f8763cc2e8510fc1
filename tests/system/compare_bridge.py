#!/usr/bin/env python3
"""Random small models of every family of `megatron bridge`, beside transformers.

  compare_bridge.py MEGATRON [--count 100] [--seed 0] [--only FAMILY] [--keep DIR]

For each: `bridge import --verify` must find the logits of transformers within 1e-4 in fp32, and `bridge export` must
give the same tensors, bit for bit, and a config.json with the same keys and values; without the kept config.json
(--hf-model-type) transformers must compute the same logits from the export. Prints each failure with its config.
"""
import argparse, json, os, random, shutil, subprocess, sys, tempfile
import torch, transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4
VOCABULARY = 97

def outer(r, **given):
    """Sizes that all families have. Grouped queries, and a head size that does not follow from the width."""
    groups = r.choice([1, 2, 3])
    heads = groups * r.choice([1, 2, 3])
    head_dim = r.choice([4, 6, 8, 10])
    sizes = dict(vocab_size=VOCABULARY, hidden_size=heads * (head_dim if r.random() < 0.3 else 2 * r.randint(2, 8)),
                 intermediate_size=r.randint(9, 60), num_hidden_layers=r.randint(1, 4), num_attention_heads=heads,
                 num_key_value_heads=groups, head_dim=head_dim, max_position_embeddings=r.choice([32, 64, 100]),
                 bos_token_id=1, eos_token_id=2, pad_token_id=0, attention_dropout=0.0)
    sizes.update(given)
    return sizes

def tied(r): return dict(tie_word_embeddings=r.random() < 0.5)
def norm(r, key="rms_norm_eps"): return {key: r.choice([1e-6, 1e-5, 1e-3])}

def no_head_dim(r, **given):
    """Of families whose heads share the width."""
    sizes = outer(r, **given)
    sizes["hidden_size"] = sizes["num_attention_heads"] * sizes.pop("head_dim")
    return sizes

def rope(r, head_dim, kinds=("default", "linear", "llama3", "yarn", "dynamic")):
    kind, theta = r.choice(kinds), r.choice([1e4, 5e5, 1234.0])
    settings = dict(rope_type=kind, rope_theta=theta)
    if kind != "default": settings["factor"] = r.choice([2.0, 4.0, 2.5])
    if kind == "llama3": settings.update(low_freq_factor=1.0, high_freq_factor=r.choice([4.0, 2.0]), original_max_position_embeddings=16)
    if kind == "yarn": settings.update(original_max_position_embeddings=16, beta_fast=32, beta_slow=1)
    return dict(rope_parameters=settings)

def layer_types(r, layers): return [r.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]

def gpt2(r):
    heads = r.choice([1, 2, 3, 5])
    width = heads * r.choice([4, 7, 8])
    return transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=width, n_layer=r.randint(1, 3), n_head=heads, n_positions=40,
                                   n_inner=r.choice([None, 33]), resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                   activation_function=r.choice(["gelu_new", "gelu_pytorch_tanh"]), **norm(r, "layer_norm_epsilon"),
                                   bos_token_id=1, eos_token_id=2)

def llama(r):
    sizes = outer(r)
    biases = r.random() < 0.3
    return transformers.LlamaConfig(**sizes, **tied(r), **norm(r), **rope(r, sizes["head_dim"]), attention_bias=biases, mlp_bias=biases)

def mistral(r): return transformers.MistralConfig(**outer(r), **tied(r), **norm(r), sliding_window=r.choice([None, 3, 7]))

def mixtral(r):
    experts = r.randint(2, 6)
    return transformers.MixtralConfig(**outer(r), **tied(r), **norm(r), num_local_experts=experts,
                                      num_experts_per_tok=r.randint(2, experts), sliding_window=r.choice([None, 5]))

def qwen2(r):
    sizes, slides = no_head_dim(r), r.random() < 0.5
    return transformers.Qwen2Config(**sizes, **tied(r), **norm(r), use_sliding_window=slides, sliding_window=r.choice([3, 6]),
                                    max_window_layers=r.randint(0, sizes["num_hidden_layers"]))

def qwen3(r):
    sizes, slides = outer(r), r.random() < 0.4
    return transformers.Qwen3Config(**sizes, **tied(r), **norm(r), use_sliding_window=slides, sliding_window=4,
                                    max_window_layers=r.randint(0, sizes["num_hidden_layers"]),
                                    **rope(r, sizes["head_dim"], ("default", "linear", "yarn")))

def experts_of_qwen(r, layers):
    experts = r.randint(2, 6)
    dense = [layer for layer in range(layers) if layers > 1 and r.random() < 0.25][:layers - 1]
    return dict(num_experts=experts, num_experts_per_tok=r.randint(2, experts), norm_topk_prob=r.random() < 0.5,
                moe_intermediate_size=r.randint(5, 20), decoder_sparse_step=1, mlp_only_layers=dense)

def qwen2_moe(r):
    sizes = no_head_dim(r)
    return transformers.Qwen2MoeConfig(**sizes, **tied(r), **norm(r), shared_expert_intermediate_size=r.randint(4, 20),
                                       **experts_of_qwen(r, sizes["num_hidden_layers"]))

def qwen3_moe(r):
    sizes = outer(r)
    return transformers.Qwen3MoeConfig(**sizes, **tied(r), **norm(r), use_sliding_window=r.random() < 0.4, sliding_window=5,
                                       **experts_of_qwen(r, sizes["num_hidden_layers"]))

def deepseek(r, **given):
    sizes = outer(r)
    sizes.pop("head_dim")
    sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    groups = r.choice([2, 4])
    return dict(sizes, rms_norm_eps=1e-6, kv_lora_rank=r.choice([6, 10]), q_lora_rank=r.choice([None, 9, 14]), qk_rope_head_dim=r.choice([4, 6]),
                qk_nope_head_dim=r.choice([4, 6]), v_head_dim=r.choice([6, 8]), n_routed_experts=8, num_experts_per_tok=groups,
                n_shared_experts=r.randint(1, 2), first_k_dense_replace=r.randint(0, sizes["num_hidden_layers"] - 1), n_group=groups,
                topk_group=r.randint(2, groups), moe_intermediate_size=r.randint(6, 16), routed_scaling_factor=r.choice([1.0, 2.5]), **given)

def deepseek_v2(r):
    return transformers.DeepseekV2Config(**deepseek(r, scoring_func="softmax", norm_topk_prob=False,
                                                    topk_method=r.choice(["greedy", "group_limited_greedy"])))

def deepseek_v3(r):
    scaling = {}
    if r.random() < 0.4:
        scaling = dict(rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=8.0, original_max_position_embeddings=8,
                                            beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0))
    return transformers.DeepseekV3Config(**deepseek(r, norm_topk_prob=True, **scaling))

def gemma2(r):
    sizes = outer(r)
    return transformers.Gemma2Config(**sizes, **tied(r), **norm(r), sliding_window=r.choice([3, 5]), query_pre_attn_scalar=r.choice([7, 8, 24]),
                                     attn_logit_softcapping=r.choice([None, 20.0]), final_logit_softcapping=r.choice([None, 10.0]))

def gemma3_text(r):
    sizes = outer(r)
    kinds = dict(full_attention=rope(r, 0, ("default", "linear"))["rope_parameters"],
                 sliding_attention=dict(rope_type="default", rope_theta=r.choice([1e4, 100.0])))
    return transformers.Gemma3TextConfig(**sizes, **tied(r), **norm(r), sliding_window=r.choice([3, 5]), query_pre_attn_scalar=8,
                                         layer_types=layer_types(r, sizes["num_hidden_layers"]), rope_parameters=kinds)

def gpt_oss(r):
    sizes, experts = outer(r), r.randint(2, 5)
    return transformers.GptOssConfig(**sizes, **tied(r), **norm(r), num_local_experts=experts, num_experts_per_tok=r.randint(2, experts),
                                     sliding_window=r.choice([3, 6]), layer_types=layer_types(r, sizes["num_hidden_layers"]),
                                     **rope(r, sizes["head_dim"], ("default", "yarn")))

def phi3(r):
    sizes = no_head_dim(r)
    head_dim = sizes["hidden_size"] // sizes["num_attention_heads"]
    settings = dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=r.choice([1.0, 0.5]) if head_dim % 4 == 0 else 1.0)
    more = {}
    if r.random() < 0.4:
        pairs = int(head_dim * settings["partial_rotary_factor"]) // 2
        settings.update(rope_type="longrope", short_factor=[1.0 + 0.1 * i for i in range(pairs)], long_factor=[1.0 + 0.7 * i for i in range(pairs)])
        more = dict(original_max_position_embeddings=16)
    return transformers.Phi3Config(**sizes, **tied(r), **norm(r), **more, sliding_window=r.choice([None, 9]), rope_parameters=settings,
                                   resid_pdrop=0.0, embd_pdrop=0.0)

def nemotron(r):
    sizes = outer(r, head_dim=r.choice([4, 8]))
    biases = r.random() < 0.3
    return transformers.NemotronConfig(**sizes, **tied(r), **norm(r, "norm_eps"), attention_bias=biases, mlp_bias=biases,
                                       hidden_act="relu2", partial_rotary_factor=r.choice([0.5, 1.0]))

def olmo2(r): return transformers.Olmo2Config(**no_head_dim(r), **tied(r), **norm(r))

def granite(r):
    """Its linear layers have no biases in published models, and are rejected with them."""
    return transformers.GraniteConfig(**no_head_dim(r), **tied(r), **norm(r), embedding_multiplier=r.choice([1.0, 3.0, 12.0]),
                                      attention_multiplier=r.choice([0.1, 0.3]), residual_multiplier=r.choice([0.22, 0.7]),
                                      logits_scaling=r.choice([2.0, 6.0]))

def starcoder2(r):
    return transformers.Starcoder2Config(**no_head_dim(r), **tied(r), **norm(r, "norm_epsilon"), sliding_window=r.choice([None, 6]),
                                         use_bias=r.random() < 0.7, residual_dropout=0.0, embedding_dropout=0.0)

FAMILIES = [gpt2, llama, mistral, mixtral, qwen2, qwen3, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, gemma2, gemma3_text,
            gpt_oss, phi3, nemotron, olmo2, granite, starcoder2]

def fill(model, generator):
    """No parameter is zero or one, and experts are never nearly tied."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name.split(".")[-2] or ".ln_" in name
            around = 0.0 if "gemma" in model.config.model_type or not is_norm else 1.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + around)
        for name, buffer in model.named_buffers():
            if "e_score_correction_bias" in name: buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.3)

def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                experts_implementation="eager").eval()

def logits_of(model, ids):
    with torch.no_grad(): return model(ids, use_cache=False).logits.contiguous()

def tensors_of(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("model") and name.endswith(".safetensors"): tensors.update(load_file(os.path.join(folder, name)))
    return tensors

def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))

def call(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0: raise RuntimeError(f"{' '.join(words[1:3])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout

def compare(megatron, config, seed, work):
    """@return the largest difference of a logit, as megatron prints it."""
    model_folder, checkpoint, exported, described = (os.path.join(work, name) for name in ("model", "ckpt", "hf", "described"))
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config._attn_implementation = config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    fill(model, generator)
    model.save_pretrained(model_folder, max_shard_size=random.Random(seed).choice(["20KB", "5GB"]))
    ids = torch.randint(3, VOCABULARY, (2, 23), generator=generator)
    expected = logits_of(load(model_folder), ids)
    save_file({"input_ids": ids, "logits": expected}, os.path.join(model_folder, "expected.safetensors"))
    text = call([megatron, "bridge", "import", "--hf-path", model_folder, "--save", checkpoint, "--verify", "--verify-tolerance",
                 str(TOLERANCE), "--num-threads", "1", "--device", "cpu"])
    call([megatron, "bridge", "export", "--load", checkpoint, "--hf-path", exported])
    ours, theirs = tensors_of(exported), tensors_of(model_folder)
    others = sorted(name for name in ours.keys() | theirs.keys()
                    if name not in ours or name not in theirs or not same_bits(ours[name], theirs[name]))
    if others: raise RuntimeError(f"tensors differ after import and export: {', '.join(others)}")
    if json.load(open(os.path.join(exported, "config.json"))) != json.load(open(os.path.join(model_folder, "config.json"))):
        raise RuntimeError("config.json differs after import and export")
    call([megatron, "bridge", "export", "--load", checkpoint, "--hf-path", described, "--hf-model-type", config.model_type])
    again = logits_of(load(described), ids)
    if (again - expected).abs().max() > TOLERANCE:
        raise RuntimeError(f"transformers computes other logits ({(again - expected).abs().max()}) with the config.json that was made "
                           "from the arguments")
    return float(text.split(" by at most ")[1].split(",")[0])

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("megatron")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--keep", help="folder for the models that fail")
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    makers = [maker for maker in FAMILIES if given.only in (None, maker.__name__)]
    failures, worst = 0, 0.0
    for number in range(given.count):
        maker, seed = makers[number % len(makers)], given.seed * 100000 + number
        work = tempfile.mkdtemp()
        try:
            config = maker(random.Random(seed))
            worst = max(worst, compare(os.path.realpath(given.megatron), config, seed, work))
        except Exception as error:
            failures += 1
            print(f"FAILED {maker.__name__} (number {number}, seed {given.seed}): {type(error).__name__}: {error}", flush=True)
            if given.keep: shutil.copytree(work, os.path.join(given.keep, f"{maker.__name__}_{number}"), dirs_exist_ok=True)
        finally:
            shutil.rmtree(work)
    print(f"{given.count - failures} of {given.count} models agree with transformers {transformers.__version__}; "
          f"largest difference of a logit: {worst:.3g}")
    sys.exit(failures > 0)

main()
