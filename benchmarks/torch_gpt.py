#!/usr/bin/env python3
"""A training step of a GPT-2 in plain eager PyTorch on the CPU, to compare with.

The step is whole: batch, forward, loss, backward, gradient clipping, AdamW. Weights and optimizer states are fp32;
with --bf16 the forward runs under autocast to bfloat16. Attention is scaled_dot_product_attention.
Prints one line: milliseconds of the median step, tokens per second, the last loss.
"""

import argparse
import os
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, width, heads, bias, gelu):
        super().__init__()
        self.heads = heads
        self.gelu = gelu
        self.norm1 = nn.LayerNorm(width, bias=bias)
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.proj = nn.Linear(width, width, bias=bias)
        self.norm2 = nn.LayerNorm(width, bias=bias)
        self.fc1 = nn.Linear(width, 4 * width, bias=bias)
        self.fc2 = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(h, dim=2))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(heads.transpose(1, 2).reshape(b, s, h))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate=self.gelu))


class Gpt(nn.Module):
    """Learned positions; the output layer is the token embedding."""

    def __init__(self, args):
        super().__init__()
        bias = not args.no_bias
        gelu = "none" if args.no_bias else "tanh"  # as Megatron chooses
        self.tokens = nn.Embedding(args.vocab, args.hidden)
        self.positions = nn.Embedding(max(args.sequence, args.max_positions), args.hidden)
        self.blocks = nn.ModuleList(Block(args.hidden, args.heads, bias, gelu) for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.hidden, bias=bias)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))


def batches(args):
    """Random tokens, or random windows of a text whose characters are the tokens."""
    generator = torch.Generator().manual_seed(1234)
    if args.text:
        with open(args.text, encoding="utf-8") as file:
            text = file.read()
        ids = {character: i for i, character in enumerate(sorted(set(text)))}
        data = torch.tensor([ids[character] for character in text])
    else:
        data = torch.randint(args.vocab, (1_000_000,), generator=generator)
    while True:
        starts = torch.randint(len(data) - args.sequence, (args.batch,), generator=generator).tolist()
        yield (torch.stack([data[i : i + args.sequence] for i in starts]),
               torch.stack([data[i + 1 : i + 1 + args.sequence] for i in starts]))


def train(args):
    torch.manual_seed(1234)
    torch.set_num_threads(args.threads)
    model = Gpt(args)
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, args.beta2), fused=args.fused_adamw or None)
    source = batches(args)
    times = []
    for _ in range(args.warmup + args.steps):
        start = time.perf_counter()
        tokens, labels = next(source)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            loss = model(tokens, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        last_loss = loss.item()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times[args.warmup :])
    print(f"torch {torch.__version__} ms/step {1e3 * seconds:.3f} tokens/s {args.batch * args.sequence / seconds:.1f} "
          f"loss {last_loss:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--max-positions", type=int, default=0)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--no-bias", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="autocast; weights stay fp32")
    parser.add_argument("--fused-adamw", action="store_true")
    parser.add_argument("--text", help="train on the characters of this file instead of random tokens")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
