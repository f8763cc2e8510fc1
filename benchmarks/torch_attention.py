#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention at the shapes of cuda_attention, causal, bf16.

    torch_attention.py [RESULTS.json]

TFLOP/s count two products forward and five backward over half of the s x s pairs.
"""

import json
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = {  # rows, batch, query heads, key heads, head size
    "8B s4096": (4096, 1, 32, 8, 128),
    "8B s8192": (8192, 1, 32, 8, 128),
    "GPT-2 124M b8": (1024, 8, 12, 12, 64),
    "GPT-2 124M b32": (1024, 32, 12, 12, 64),
}
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention-2": SDPBackend.FLASH_ATTENTION}
WARMUPS, REPEATS = 3, 20


def microseconds(run):
    for _ in range(WARMUPS):
        run()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(1000 * begin.elapsed_time(end))
    return statistics.median(times)


def heads(s, b, n, d):
    """[b, n, s, d], rows of all heads side by side as in [s, b, n, d]."""
    return torch.randn(s, b, n, d, device="cuda", dtype=torch.bfloat16).permute(1, 2, 0, 3).requires_grad_()


def main():
    rows = []
    for name, (s, b, n, g, d) in SHAPES.items():
        q, k, v = heads(s, b, n, d), heads(s, b, g, d), heads(s, b, g, d)
        operations = 2 * s * s * b * n * d
        for backend, choice in BACKENDS.items():
            with sdpa_kernel(choice):
                def forward(q=q, k=k, v=v, n=n, g=g):
                    return torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=True, enable_gqa=n != g
                    )

                try:
                    o = forward()
                    grad = torch.randn_like(o)
                    times = {
                        "forward": (microseconds(forward), operations),
                        "backward": (
                            microseconds(lambda o=o: torch.autograd.grad(o, (q, k, v), grad, retain_graph=True)),
                            2.5 * operations,
                        ),
                    }
                except RuntimeError as error:
                    print(f"{backend} {name}: {error}")
                    continue
            for direction, (time, count) in times.items():
                label = f"torch {backend} {name} {direction}"
                print(f"{label:<50}{time:>10.1f} us {count / time / 1e6:>8.1f} TFLOP/s")
                rows.append({"name": label, "microseconds": round(time, 2), "operations": count})
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "cudnn": torch.backends.cudnn.version(), "kernels": rows}, file, indent=1)


if __name__ == "__main__":
    main()
