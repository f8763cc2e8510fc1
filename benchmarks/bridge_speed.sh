#!/usr/bin/env bash
# How fast `megatron bridge import` and `export` are beside a copy of the same files, and how much memory they take.
#
#   benchmarks/bridge_speed.sh build/bin/megatron [FOLDER] [REPEATS]
#
# Makes a Llama with the sizes of TinyLlama 1.1B and random weights (2.2 GB of bf16, in shards of 500 MB) in a new folder
# below FOLDER (default: /tmp), which needs 9 GB free. Each time ends when the files are on the disk, and each run begins
# with its input outside the page cache. The median of REPEATS (default: 3) counts. Fails if a command is slower than 80 %
# of the copy's speed, or its peak memory is above three times the largest tensor plus 512 MB.
set -euo pipefail
program=$(realpath "${1:?usage: bridge_speed.sh PROGRAM [FOLDER] [REPEATS]}")
work=$(mktemp -d "${2:-/tmp}/bridge_speed.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 - "$program" "$work" "${3:-3}" <<'PYTHON'
import json, os, shutil, statistics, struct, subprocess, sys, time

program, work, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
layers, hidden, ffn, vocab, heads, groups = 22, 2048, 5632, 32000, 32, 4
shard_bytes = 500_000_000

def make_model(folder):
    """@return bytes of all files and of the largest tensor."""
    os.makedirs(folder)
    width = hidden // heads * groups
    shapes = {"model.embed_tokens.weight": [vocab, hidden]}
    for i in range(layers):
        of = f"model.layers.{i}."
        shapes |= {of + "self_attn.q_proj.weight": [hidden, hidden], of + "self_attn.k_proj.weight": [width, hidden],
                   of + "self_attn.v_proj.weight": [width, hidden], of + "self_attn.o_proj.weight": [hidden, hidden],
                   of + "mlp.gate_proj.weight": [ffn, hidden], of + "mlp.up_proj.weight": [ffn, hidden],
                   of + "mlp.down_proj.weight": [hidden, ffn], of + "input_layernorm.weight": [hidden],
                   of + "post_attention_layernorm.weight": [hidden]}
    shapes |= {"model.norm.weight": [hidden], "lm_head.weight": [vocab, hidden]}
    bytes_of = lambda shape: 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    shards, used = [[]], 0
    for name, shape in shapes.items():
        if shards[-1] and used + bytes_of(shape) > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += bytes_of(shape)
    weight_map = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        header, offset = {}, 0
        for name in names:
            end = offset + bytes_of(shapes[name])
            header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [offset, end]}
            weight_map[name], offset = file, end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, file), "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for begin in range(0, offset, 1 << 24):
                out.write(os.urandom(min(1 << 24, offset - begin)))
    total = sum(map(bytes_of, shapes.values()))
    json.dump({"metadata": {"total_size": total}, "weight_map": weight_map},
              open(os.path.join(folder, "model.safetensors.index.json"), "w"))
    json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": hidden,
               "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
               "num_key_value_heads": groups, "hidden_act": "silu", "max_position_embeddings": 2048,
               "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "rope_theta": 10000.0, "torch_dtype": "bfloat16"},
              open(os.path.join(folder, "config.json"), "w"))
    return total, max(map(bytes_of, shapes.values()))

def files_of(folder):
    return [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]

def leave_page_cache(folder):
    for path in files_of(folder):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

def run(words, source, output):
    """@return seconds until the output is on the disk, and the peak of memory in bytes."""
    shutil.rmtree(output, ignore_errors=True)
    os.sync()
    leave_page_cache(source)
    begin = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0: sys.exit(f"bridge_speed: {' '.join(words)} failed")
    for path in files_of(output):
        with open(path, "rb") as file: os.fsync(file.fileno())
    return time.monotonic() - begin, usage.ru_maxrss * 1024

model, copy, imported, exported = (os.path.join(work, name) for name in ("model", "copy", "imported", "exported"))
total, largest = make_model(model)
limit = 3 * largest + 512_000_000
print(f"{total / 1e9:.2f} GB of weights, the largest tensor {largest / 1e6:.0f} MB; at most {limit / 1e6:.0f} MB of memory")
commands = {"copy": (["cp", "-r", model, copy], model, copy),
            "import": ([program, "bridge", "import", "--hf-path", model, "--save", imported], model, imported),
            "export": ([program, "bridge", "export", "--load", imported, "--hf-path", exported], imported, exported)}
# The commands take turns, so that a disk whose speed changes is the same for all.
results = {name: [] for name in commands}
for _ in range(repeats):
    for name, command in commands.items(): results[name].append(run(*command))
median = {name: statistics.median(seconds for seconds, _ in runs) for name, runs in results.items()}
failures = []
print(f"{'':8}{'seconds':>9}{'GB/s':>7}{'of copy':>9}{'peak MB':>9}   all runs")
for name, runs in results.items():
    peak, share = max(peak for _, peak in runs), median["copy"] / median[name]
    print(f"{name:8}{median[name]:9.2f}{total / median[name] / 1e9:7.2f}{share:9.0%}{peak / 1e6:9.0f}   "
          + " ".join(f"{seconds:.2f}" for seconds, _ in runs))
    if name == "copy": continue
    if share < 0.8: failures.append(f"{name} has {share:.0%} of the copy's speed, less than 80 %")
    if peak > limit: failures.append(f"{name} takes {peak / 1e6:.0f} MB of memory, more than {limit / 1e6:.0f} MB")
sys.exit("\n".join("bridge_speed: " + failure for failure in failures) if failures else 0)
PYTHON
