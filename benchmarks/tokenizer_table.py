#!/usr/bin/env python3
"""Speed of tokenizers beside the reference libraries, in one run on the same cores.

    benchmarks/tokenizer_table.py TOKENIZER_SPEED FIXTURES [--text FILE...] [--megabytes N] [--rounds N] [--threads N]

TOKENIZER_SPEED is the program of tokenizer_speed.cpp (-DMEGATRON_BENCHMARKS=ON), FIXTURES a folder of
tests/system/make_tokenizers.py. The documents are the given files, cut into parts of 4,000 characters, or Python's standard
library. Both sides encode them --rounds times, alternating, and the fastest round counts. Rates are bytes over the time that
threads had a core: a rate of one core, which other programs on the machine change little. "cold" starts with nothing known,
"warm" follows on the same documents. Ids must be equal in number.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "system"))
import make_tokenizers  # noqa: E402

DOCUMENT_CHARACTERS = 4000


def documents(options):
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in options.text) if options.text \
        else make_tokenizers.python_sources()
    result, left = [], options.megabytes * 1_000_000
    for text in texts:
        for begin in range(0, len(text), DOCUMENT_CHARACTERS):
            document = text[begin:begin + DOCUMENT_CHARACTERS].replace("\0", " ")
            left -= len(document.encode())
            if left < 0:
                return result
            result.append(document)
    return result


def reference(name, folder):
    """A function that encodes documents; tokenizers' own cache is emptied with each new object."""
    if name.endswith(".model"):
        from sentencepiece import SentencePieceProcessor
        return lambda: SentencePieceProcessor(model_file=str(folder / name)).encode
    from tokenizers import Tokenizer

    def make():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / f"{name}.json"))
        return lambda texts: [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
    return make


def time_reference(make, texts, rounds):
    cold = warm = float("inf")
    for _ in range(rounds):
        encode = make()
        for is_first in (True, False):
            begin = time.process_time()
            ids = encode(texts)
            seconds = time.process_time() - begin
            cold, warm = (min(cold, seconds), warm) if is_first else (cold, min(warm, seconds))
    return cold, warm, sum(map(len, ids))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer_speed")
    parser.add_argument("fixtures", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, nargs="+")
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--names", nargs="+", default=["gpt2", "llama3", "qwen2", "o200k", "deepseek", "llama2", "bert", "t5",
                                                       "llama2.model", "t5.model"])
    options = parser.parse_args()
    texts = documents(options)
    print("| tokenizer | cold MB/s a core | warm MB/s a core | library cold | library warm | warm ratio |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "documents"
        file.write_bytes(b"".join(text.encode() + b"\0" for text in texts))
        size = sum(len(text.encode()) for text in texts) / 1e6
        for name in options.names:
            kind = ["SentencePieceTokenizer", options.fixtures / name] if name.endswith(".model") \
                else ["HuggingFaceTokenizer", options.fixtures / "tokenizers" / f"{name}.json"]
            result = subprocess.run([options.tokenizer_speed, *map(str, kind), str(file), str(options.rounds), str(options.threads)],
                                    stdout=subprocess.PIPE, check=True)
            ours = json.loads(result.stdout)
            cold, warm, num_ids = time_reference(reference(name, options.fixtures), texts, options.rounds)
            if num_ids != ours["ids"]:
                sys.exit(f"{name}: the library gives {num_ids} ids, megatron {ours['ids']}")
            print(f"| {name} | {size / ours['cold_cpu']:.0f} | {size / ours['warm_cpu']:.0f} | {size / cold:.1f} | {size / warm:.1f} "
                  f"| {warm / ours['warm_cpu']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
