#!/usr/bin/env python3
"""Tiny Llamas in the form in which Meta publishes them, with the weights of models beside this script.

  make_meta.py HF_FOLDER OUT NUM_FILES {columns|rows}

The last word is how the files share the embedding: columns up to Llama 2, rows from Llama 3 on. Rows that a vocabulary
lacks to be shared are zero. Meta's order of the rows of queries and keys is the inverse of what transformers'
convert_llama_weights_to_hf.py makes of them.
"""
import json, os, sys
import torch
from safetensors.torch import load_file

source, out, num_files, embedding = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
config = json.load(open(os.path.join(source, "config.json")))
weights = {}
for name in sorted(os.listdir(source)):
    if name.startswith("model") and name.endswith(".safetensors"): weights.update(load_file(os.path.join(source, name)))

def unpermuted(w, heads):
    return w.view(heads, 2, w.shape[0] // heads // 2, w.shape[1]).transpose(1, 2).reshape(w.shape)

def padded(w):
    return torch.cat([w, w.new_zeros(-w.shape[0] % num_files, w.shape[1])])

def parts(w, dim):
    return [p.clone().contiguous() for p in w.chunk(num_files, dim)] if dim is not None else [w] * num_files

heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
meta = {"tok_embeddings.weight": parts(padded(weights["model.embed_tokens.weight"]), 1 if embedding == "columns" else 0),
        "norm.weight": parts(weights["model.norm.weight"], None),
        "output.weight": parts(padded(weights["lm_head.weight"]), 0),
        "rope.freqs": parts(torch.ones(config["head_dim"] // 2), None)}
for i in range(config["num_hidden_layers"]):
    of = lambda name: weights[f"model.layers.{i}.{name}.weight"]
    for name, tensor, dim in [("attention.wq", unpermuted(of("self_attn.q_proj"), heads), 0),
                              ("attention.wk", unpermuted(of("self_attn.k_proj"), groups), 0),
                              ("attention.wv", of("self_attn.v_proj"), 0),
                              ("attention.wo", of("self_attn.o_proj"), 1),
                              ("feed_forward.w1", of("mlp.gate_proj"), 0),
                              ("feed_forward.w3", of("mlp.up_proj"), 0),
                              ("feed_forward.w2", of("mlp.down_proj"), 1),
                              ("attention_norm", of("input_layernorm"), None),
                              ("ffn_norm", of("post_attention_layernorm"), None)]:
        meta[f"layers.{i}.{name}.weight"] = parts(tensor, dim)
params = {"dim": config["hidden_size"], "n_layers": config["num_hidden_layers"], "n_heads": heads, "n_kv_heads": groups,
          "head_dim": config["head_dim"], "vocab_size": -1, "multiple_of": 4, "norm_eps": config["rms_norm_eps"]}
rope = config["rope_parameters"]
if rope["rope_type"] == "llama3":
    params.update(rope_theta=rope["rope_theta"], use_scaled_rope=True, rope_scaling_factor=rope["factor"],
                  rope_high_freq_factor=rope["high_freq_factor"])
os.makedirs(out, exist_ok=True)
json.dump(params, open(os.path.join(out, "params.json"), "w"), indent=1)
for number in range(num_files):
    torch.save({name: pieces[number] for name, pieces in meta.items()}, os.path.join(out, f"consolidated.{number:02}.pth"))
