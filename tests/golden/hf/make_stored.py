#!/usr/bin/env python3
"""Tiny models as save_pretrained does not write them: quantised ones, with the same dequantised to bf16 by torch and
transformers, and one with a layer that predicts further tokens.

  make_stored.py OUT     reads OUT/{deepseek_v3,gpt_oss}, writes OUT/{deepseek_v3_fp8,gpt_oss_mxfp4}, both with _dequantized, and OUT/deepseek_v3_mtp
"""
import json, os, sys
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM
from transformers.modeling_layers import MtpModel
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

OUT = sys.argv[1]


def write(name, config, quantization, stored, dequantized):
    for folder, tensors, extra in ((name, stored, {"quantization_config": quantization}), (name + "_dequantized", dequantized, {})):
        os.makedirs(os.path.join(OUT, folder), exist_ok=True)
        json.dump(dict(config, dtype="bfloat16", **extra), open(os.path.join(OUT, folder, "config.json"), "w"), indent=2)
        save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(OUT, folder, "model.safetensors"), metadata={"format": "pt"})


def fp8(block=(16, 8)):
    """e4m3 with a factor for each block; 28, 44, 14, 10 and others are no multiples of its sides."""
    config = json.load(open(os.path.join(OUT, "deepseek_v3", "config.json")))
    stored, dequantized = {}, {}
    for name, w in load_file(os.path.join(OUT, "deepseek_v3", "model.safetensors")).items():
        if not name.endswith("_proj.weight") and "kv_a_proj" not in name:
            stored[name] = dequantized[name] = w if "e_score" in name else w.bfloat16()
            continue
        rows, columns = w.shape
        row_block, column_block = torch.arange(rows) // block[0], torch.arange(columns) // block[1]
        scale = torch.zeros(row_block[-1] + 1, column_block[-1] + 1)
        for i in range(scale.shape[0]):
            for j in range(scale.shape[1]):
                scale[i, j] = w[row_block == i][:, column_block == j].abs().max() / 448
        each = scale[row_block][:, column_block]
        stored[name] = (w / each).to(torch.float8_e4m3fn)
        stored[name + "_scale_inv"] = scale
        dequantized[name] = (stored[name].float() * each).bfloat16()
    quantization = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=list(block))
    write("deepseek_v3_fp8", config, quantization, stored, dequantized)


def mxfp4():
    torch.manual_seed(7)
    config = GptOssConfig(vocab_size=41, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                          head_dim=8, num_local_experts=2, num_experts_per_tok=2, sliding_window=6, max_position_embeddings=64)
    model = GptOssForCausalLM(config).bfloat16()
    stored, dequantized = {}, {}
    for name, w in model.state_dict().items():
        stored[name] = dequantized[name] = torch.randn(w.shape).bfloat16()
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        del stored[name]
        experts, inner, outer = w.shape
        blocks = torch.randint(0, 256, (experts, outer, inner // 32, 16), dtype=torch.uint8)
        scales = torch.randint(118, 128, (experts, outer, inner // 32), dtype=torch.uint8)
        stored[name + "_blocks"], stored[name + "_scales"] = blocks, scales
        dequantized[name] = convert_moe_packed_tensors(blocks, scales)
    text = json.loads(config.to_json_string(use_diff=False))
    keys = json.load(open(os.path.join(OUT, "gpt_oss", "config.json"))).keys()
    text = {k: text[k] for k in keys if k in text} | {"architectures": ["GptOssForCausalLM"]}
    write("gpt_oss_mxfp4", text, dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn"]), stored, dequantized)


def mtp():
    """The mean losses of the next token and of the one behind it, of a sequence of 22 tokens and its 22 labels."""
    folder, out = os.path.join(OUT, "deepseek_v3"), os.path.join(OUT, "deepseek_v3_mtp")
    main = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    main.config.num_mtp_layers = 1
    further = MtpModel(main, 1).float().eval()
    g = torch.Generator().manual_seed(11)
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    with torch.no_grad():
        for name, p in further.layers[0].named_parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.2 + (1.0 if "norm" in name else 0.0))
        for name, b in further.layers[0].named_buffers():
            if "e_score_correction_bias" in name: b.copy_(torch.randn(b.shape, generator=g) * 0.3)
        prefix = f"model.layers.{main.config.num_hidden_layers}."
        for name, w in further.layers[0].state_dict().items():
            name = name.replace("mtp_block.", "").replace("post_norm", "shared_head.norm")
            if name.endswith("gate_up_proj"):
                for e in range(w.shape[0]):
                    for part, half in zip(("gate", "up"), w[e].chunk(2)): tensors[f"{prefix}mlp.experts.{e}.{part}_proj.weight"] = half.clone()
            elif name.endswith("experts.down_proj"):
                for e in range(w.shape[0]): tensors[f"{prefix}mlp.experts.{e}.down_proj.weight"] = w[e].clone()
            else:
                tensors[prefix + name] = w.clone()
        tensors[prefix + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[prefix + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
        ids = torch.randint(3, 97, (1, 23), generator=g)
        hidden = main.model(ids[:, :-1], use_cache=False).last_hidden_state[:, :-1]      # of positions 0..20
        n = hidden.shape[1]
        position_ids = torch.arange(1, n + 1)[None]
        layer, embeds = further.layers[0], main.get_input_embeddings()(ids[:, 1:-1])     # tokens 1..21
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        y = layer(embeds, hidden, main.model.rotary_emb(embeds, position_ids), mask, position_ids, None)
        mean = torch.nn.functional.cross_entropy
        losses = dict(loss=mean(main(ids[:, :-1], use_cache=False).logits[0], ids[0, 1:]).item(), mtp_loss=mean(main.lm_head(y)[0], ids[0, 2:]).item())
    os.makedirs(out, exist_ok=True)
    json.dump(json.load(open(os.path.join(folder, "config.json"))), open(os.path.join(out, "config.json"), "w"), indent=2)
    save_file(tensors, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    save_file({"input_ids": ids}, os.path.join(out, "expected.safetensors"), metadata={k: repr(v) for k, v in losses.items()})


fp8()
mxfp4()
mtp()
