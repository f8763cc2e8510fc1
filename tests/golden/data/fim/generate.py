#!/usr/bin/env python3
"""What Megatron-LM's GPTFIMDataset makes of samples.

    python generate.py FIM_DATASET.py OUT.json    needs numpy

FIM_DATASET.py is megatron/training/datasets/fim_dataset.py of Megatron-LM; the classes that it derives from are not needed and
are replaced by empty ones. The tokenizer has a token for each character, its code point, and special tokens from 0x110000 on,
which are left out of the text. All samples of a case share one stream of random numbers.
"""
import importlib.util
import json
import sys
import types
from types import SimpleNamespace

import numpy as np

SPECIAL = {name: 0x110000 + i for i, name in enumerate(["prefix", "middle", "suffix", "pad", "eod", "split"])}


class Characters:
    def tokens_to_ids(self, tokens):
        return SPECIAL[tokens] if isinstance(tokens, str) else [SPECIAL[token] for token in tokens]

    def ids_to_text(self, ids, remove_special_tokens=True):
        return "".join(chr(i) for i in ids if i < 0x110000)

    def text_to_ids(self, text):
        return [ord(c) for c in text]


class Empty:
    def __init__(self, *args):
        self.config = args[-1]


def load(path):
    for name, members in {
        "megatron": {}, "megatron.core": {}, "megatron.core.datasets": {},
        "megatron.core.datasets.gpt_dataset": {"GPTDataset": Empty, "GPTDatasetConfig": object},
        "megatron.core.datasets.indexed_dataset": {"IndexedDataset": object},
        "megatron.core.datasets.utils": {"Split": object},
    }.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
    spec = importlib.util.spec_from_file_location("fim_dataset", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fim_dataset"] = module
    spec.loader.exec_module(module)
    return module.GPTFIMDataset


def samples_of(rng):
    letters = [ord(c) for c in "abcdefghij \n(){}é日😀"]
    for _ in range(25):
        sample = [letters[rng.integers(len(letters))] for _ in range(int(rng.integers(1, 60)))]
        for _ in range(int(rng.integers(0, 4))):
            sample[int(rng.integers(len(sample)))] = SPECIAL["eod"]
        for _ in range(int(rng.integers(0, 4))):
            sample[int(rng.integers(len(sample)))] = SPECIAL["split"]
        if rng.random() < 0.3:
            sample[0] = SPECIAL["eod"]
        yield sample


def main():
    dataset_class = load(sys.argv[1])
    rng = np.random.default_rng(3)
    cases = []
    for seed, rate, spm_rate, split, fragment_rate, no_prefix in [
        (1234, 0.5, 0.5, False, None, None), (7, 1.0, 1.0, False, None, None), (7, 1.0, 1e-9, False, None, None),
        (5, 0.9, 0.3, True, 0.5, None), (6, 0.2, 0.8, True, 1.0, "a"), (99, 0.7, 0.5, False, None, "b"),
    ]:
        config = SimpleNamespace(
            random_seed=seed, fim_rate=rate, fim_spm_rate=spm_rate, fim_fragment_rate=fragment_rate,
            fim_split_sample="split" if split else None, fim_no_prefix=no_prefix,
            fim_extra_tokens={name: name for name in SPECIAL}, tokenizer=SimpleNamespace(_tokenizer=Characters()))
        dataset = dataset_class(None, None, None, None, None, config)
        dataset.shuffle_index, dataset.document_index = [0], [0]
        samples = []
        for sample in samples_of(rng):
            dataset.sample_index = [(0, 0), (0, len(sample) - 1)]
            dataset.dataset = SimpleNamespace(get=lambda i, offset, length: np.array(sample))
            result = dataset._query_document_sample_shuffle_indices(0)[0]
            samples.append({"sample": sample, "result": result.tolist()})
        cases.append({"seed": seed, "rate": rate, "spm_rate": spm_rate, "split": split, "fragment_rate": fragment_rate,
                      "no_prefix": no_prefix, "samples": samples})
    with open(sys.argv[2], "w") as file:
        json.dump({"special": SPECIAL, "cases": cases}, file)


if __name__ == "__main__":
    main()
