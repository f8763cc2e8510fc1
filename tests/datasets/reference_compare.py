#!/usr/bin/env python3
"""Random data sets, and what Megatron Core makes of them, for datasets_reference_test to compare with.

    python reference_compare.py OUT --seed N [--cases N]

OUT     folder to fill: pairs of .idx and .bin files, and cases.json with the expected indices and samples in the form of
        tests/golden/data/gpt/cases.json and blend/builder.json. Paths are relative to OUT.
--seed  the cases are a function of it

Needs megatron-core, torch and numpy. No GPU is used.
"""
import argparse
import json
import logging
import os
import sys
import warnings
from collections import OrderedDict

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy as np
import torch
from megatron.core.datasets.blended_dataset import BlendedDataset
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
from megatron.core.datasets.utils import Split

SPLITS = ["969, 30, 1", "1,0,0", "8,1,1", "50,25,25", "0,100,0", "7,0,3", ".5,.3,.2", "90,5,5"]


class Tokens:
    """A tokenizer as far as data sets look at one."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)
        self.unique_identifiers = OrderedDict((key, str(value)) for key, value in attributes.items())


def write_corpus(rng, prefix, num_documents, longest, vocab_size):
    """Documents of one sequence; some empty, some with an end-of-document token inside. Returns their lengths."""
    eod = vocab_size - 1
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=DType.optimal_dtype(vocab_size))
    lengths = []
    for _ in range(num_documents):
        n = 0 if rng.random() < 0.05 else int(rng.integers(1, longest))
        tokens = rng.integers(0, eod, n)
        tokens[rng.random(n) < 0.05] = eod
        if n and rng.random() < 0.8:
            tokens[-1] = eod
        builder.add_document(tokens.tolist(), [n])
        lengths.append(n)
    builder.finalize(prefix + ".idx")
    return lengths


def tokenizer_of(rng, vocab_size):
    eod = vocab_size - 1
    pad = [None, eod, int(rng.integers(0, eod))][int(rng.integers(0, 3))]
    return Tokens(vocab_size=vocab_size, eod=eod) if pad is None else Tokens(vocab_size=vocab_size, eod=eod, pad=pad)


def make_config(tokenizer, options, **paths):
    return GPTDatasetConfig(tokenizer=tokenizer, path_to_cache=None, **options, **paths)


def build(config, sizes):
    return BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()


def describe_sample(dataset, index):
    dataset.masks_and_position_ids_are_cached = False  # else marks of the sample asked for before stay
    item = dataset[index]
    record = {"index": index}
    for key in ("tokens", "labels", "loss_mask", "position_ids"):
        record[key] = item[key].to(torch.int64).tolist()
    if "attention_mask" in item:
        record["attention_mask"] = ["".join("1" if v else "0" for v in row) for row in item["attention_mask"][0].tolist()]
    return record


def describe_split(rng, dataset):
    if dataset is None:
        return None
    record = {"length": len(dataset), "hash": dataset.unique_description_hash, "samples": []}
    for name in ("document_index", "sample_index", "shuffle_index"):
        array = np.asarray(getattr(dataset, name))
        record[name] = array.tolist()
        record[name + "_dtype"] = array.dtype.str
    if len(dataset):
        chosen = {0, len(dataset) - 1, int(np.argmax(dataset.shuffle_index)), *rng.integers(0, len(dataset), 4).tolist()}
        record["samples"] = [describe_sample(dataset, i) for i in sorted(chosen)] + [describe_sample(dataset, None)]
    return record


def accepted(make, count):
    """`count` tries of a case, without those at which the reference gives up with an assertion of its own."""
    cases = []
    for number in range(count):
        try:
            cases.append(make(number))
        except (AssertionError, ValueError):  # an offset of -1 at an empty last document; a .bin without bytes
            pass
    return cases


def split_ranges(split, num_documents, options):
    matrix = make_config(Tokens(vocab_size=8, eod=7), options, blend=(["x"], None), split=split).split_matrix
    return [None if b is None else [int(round(b[0] * float(num_documents))), int(round(b[1] * float(num_documents)))]
            for b in matrix]


def gpt_case(rng, number):
    vocab_size = int(rng.choice([50, 509, 65499, 65500, 200000]))
    prefix = f"gpt_{number}"
    lengths = write_corpus(rng, prefix, int(rng.integers(1, 90)), int(rng.integers(2, 70)), vocab_size)
    split = str(rng.choice(SPLITS))
    flag = lambda: bool(rng.integers(0, 2))
    options = dict(
        sequence_length=int(rng.integers(2, 60)), random_seed=int(rng.integers(0, 2**32)), reset_position_ids=flag(),
        reset_attention_mask=flag(), eod_mask_loss=flag(), create_attention_mask=True,
        add_extra_token_to_sequence=bool(rng.random() < 0.7), drop_last_partial_validation_sequence=flag(),
        allow_ambiguous_pad_tokens=flag())
    sizes = []
    for bounds in split_ranges(split, len(lengths), options):
        tokens = 0 if bounds is None else sum(lengths[bounds[0]:bounds[1]])
        most = 5 * tokens // options["sequence_length"] + 2
        sizes.append(int(rng.integers(1, most)) if tokens > options["sequence_length"] and rng.random() < 0.7 else None)
    tokenizer = tokenizer_of(rng, vocab_size)
    datasets = build(make_config(tokenizer, options, blend=([prefix], None), split=split), sizes)
    record = {"prefix": prefix, "sizes": sizes, "config": {**options, "split": split}, "vocab_size": vocab_size,
              "pad": getattr(tokenizer, "pad", None), "identity": list(tokenizer.unique_identifiers.items())}
    for name, dataset in zip(Split, datasets):
        record[name.name] = describe_split(rng, dataset)
    return record


def describe_blend(rng, top):
    if top is None:
        return None
    assert isinstance(top, BlendedDataset)
    members = [{"prefix": d.dataset_path, "num_samples": d.num_samples, "length": len(d), "hash": d.unique_description_hash}
               for d in top.datasets]
    samples = []
    for i in sorted({0, len(top) - 1, *rng.integers(0, len(top), 3).tolist()}):
        item = top[i]
        samples.append({"index": i, "dataset_id": int(item["dataset_id"]), "tokens": item["tokens"].tolist(),
                        "labels": item["labels"].tolist()})
    return {"type": "BlendedDataset", "length": len(top), "hash": top.unique_description_hash, "members": members,
            "dataset_index": top.dataset_index.tolist(), "dataset_sample_index": top.dataset_sample_index.tolist(),
            "samples": samples}


def blend_case(rng, number):
    vocab_size = int(rng.choice([509, 70000]))
    prefixes = [f"blend_{number}_{k}" for k in range(int(rng.integers(2, 7)))]
    for prefix in prefixes:
        write_corpus(rng, prefix, int(rng.integers(20, 60)), 40, vocab_size)
    options = dict(sequence_length=int(rng.integers(4, 24)), random_seed=int(rng.integers(0, 2**31)),
                   reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False,
                   mid_level_dataset_surplus=float(rng.choice([0.005, 0.01, 0.05])))
    weighted = bool(rng.integers(0, 2))
    weights = (rng.integers(1, 100, len(prefixes)) / 7).tolist() if weighted else None
    sizes = [int(rng.integers(1, 400)) if weighted or rng.random() < 0.5 else None for _ in range(3)]
    tokenizer = Tokens(vocab_size=vocab_size, eod=vocab_size - 1)
    datasets = build(make_config(tokenizer, options, blend=(prefixes, weights), split="6,3,1"), sizes)
    record = {"sizes": sizes, "config": {**options, "blend": [prefixes, weights], "split": "6,3,1"},
              "vocab_size": vocab_size, "pad": None, "identity": list(tokenizer.unique_identifiers.items())}
    for name, dataset in zip(Split, datasets):
        record[name.name] = describe_blend(rng, dataset)
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--cases", type=int, default=60)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    os.chdir(args.out)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    rng = np.random.default_rng(args.seed)
    cases = {"gpt": accepted(lambda k: gpt_case(rng, k), args.cases),
             "blend": accepted(lambda k: blend_case(rng, k), args.cases // 4)}
    with open("cases.json", "w") as file:
        json.dump(cases, file)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
