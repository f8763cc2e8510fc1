#!/usr/bin/env python3
"""Measures how long a run takes to have the indices of a large corpus.

    python3 benchmarks/index_building.py MEGATRON FOLDER [--files N] [--tokens N]

Makes N pairs of .idx and .bin files in FOLDER, whose .bin files are sparse and so take no space, and lets
`megatron prepare_cache` build the indices of one pass over them, twice: without a cache and with that of the first time.
Documents have 600 to 1,400 tokens. The times are those of the whole command. Caches are deleted only at the end: ext4 does
not use the inodes of deleted files for some seconds, and looking for others then takes longer than all the rest. Needs nothing
but Python.
"""
import argparse
import array
import os
import random
import shutil
import struct
import subprocess
import sys
import time

SEQUENCE_LENGTH = 4096


def write_pair(prefix, num_tokens, rng):
    lengths = array.array("i")
    while num_tokens > 0:
        length = min(rng.randint(600, 1400), num_tokens)
        lengths.append(length)
        num_tokens -= length
    pointers, total = array.array("q"), 0
    for length in lengths:
        pointers.append(total)
        total += 2 * length
    documents = array.array("q", range(len(lengths) + 1))
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(documents)))
        for part in (lengths, pointers, documents):
            file.write(part.tobytes())
    with open(prefix + ".bin", "wb") as file:
        file.truncate(total)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("megatron")
    parser.add_argument("folder")
    parser.add_argument("--files", type=int, default=2500)
    parser.add_argument("--tokens", type=float, default=10e9)
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    rng = random.Random(1)
    weights = []
    for i in range(args.files):
        prefix = os.path.join(args.folder, f"part_{i:05d}")
        tokens = int(args.tokens / args.files * rng.uniform(0.5, 1.5))
        if not os.path.exists(prefix + ".idx"):
            write_pair(prefix, tokens, rng)
        else:
            rng.random()
        weights += [str(os.path.getsize(prefix + ".bin") // 2), prefix]
    words = os.path.join(args.folder, "data_args.txt")
    caches = os.path.join(args.folder, "caches")
    if os.path.exists(caches):
        sys.exit(f"{caches} is there: delete it, wait for a minute, and start again")
    num_samples = int(args.tokens * 0.98) // SEQUENCE_LENGTH
    for form in ("weighted", "unweighted"):
        with open(words, "w") as file:
            file.write(" ".join(weights if form == "weighted" else weights[1::2]))
        for state in ("without a cache", "with a cache"):
            begin, before = time.time(), os.times()
            subprocess.run(
                [args.megatron, "prepare_cache", "--data-args-path", words, "--split", "98,1,1", "--data-cache-path",
                 os.path.join(caches, form), "--num-dataset-builder-threads", str(os.cpu_count()),
                 "--prepare-cache-world-size", "8",
                 "--seq-length", str(SEQUENCE_LENGTH), "--max-position-embeddings", str(SEQUENCE_LENGTH),
                 "--micro-batch-size", "1", "--global-batch-size", "256", "--train-samples", str(num_samples),
                 "--num-layers", "2", "--hidden-size", "64", "--num-attention-heads", "2", "--lr", "1e-4",
                 "--eval-iters", "0", "--tokenizer-type", "NullTokenizer", "--vocab-size", "50000"],
                check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            seconds = time.time() - begin
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            print(f"{args.files} files, {args.tokens:.3g} tokens, {form}, {state}: {seconds:.2f} s, {cpu:.2f} s of CPU")
            sys.stdout.flush()
    shutil.rmtree(caches)


if __name__ == "__main__":
    main()
