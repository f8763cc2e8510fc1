#!/usr/bin/env python3
"""JSON lines to .bin and .idx: `megatron preprocess_data` beside the loop of Megatron's tools/preprocess_data.py, in one run.

    benchmarks/preprocess_speed.py MEGATRON TOKENIZER_JSON [--text FILE...] [--megabytes N] [--workers N] [--rounds N]

The loop is a pool of processes that parse lines with json and encode them with the package tokenizers, and one process that
writes with megatron-core's IndexedDatasetBuilder if it is installed, else with numpy. Both sides write the same .bin, which is
checked. Seconds are the fastest of the rounds: by the clock, and of all processes together on the cores, which other programs
on the machine change little. The end-of-document token is the last added token of the tokenizer.
"""

import argparse
import json
import multiprocessing
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "system"))


class Encoder:
    """Megatron's Encoder: one tokenizer in each process of the pool."""

    def __init__(self, path):
        self.path = path

    def initializer(self):
        from tokenizers import Tokenizer
        Encoder.tokenizer = Tokenizer.from_file(self.path)
        Encoder.tokenizer.no_padding()
        Encoder.eod = max(Encoder.tokenizer.get_added_tokens_decoder())

    def encode(self, line):
        sentences = [json.loads(line)["text"]]
        document, lengths = [], []
        for sentence in sentences:
            ids = Encoder.tokenizer.encode(sentence).ids
            if ids:
                document.extend(ids)
                lengths.append(len(ids))
        if document:
            document.append(Encoder.eod)
            lengths[-1] += 1
        return document, lengths, len(line)


def builder_of(path):
    import numpy
    try:
        from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
        return IndexedDatasetBuilder(path, dtype=numpy.uint16), "megatron-core"
    except ImportError:
        return NumpyBuilder(path), "numpy"


class NumpyBuilder:
    def __init__(self, path):
        import numpy
        self.numpy, self.file, self.lengths = numpy, open(path, "wb"), []

    def add_document(self, document, lengths):
        self.file.write(self.numpy.array(document, dtype=self.numpy.uint16).tobytes(order="C"))
        self.lengths.extend(lengths)

    def finalize(self, _):
        self.file.close()


def megatron_loop(tokenizer, source, prefix, workers):
    encoder = Encoder(tokenizer)
    builder, name = builder_of(f"{prefix}.bin")
    with open(source, encoding="utf-8") as lines, multiprocessing.Pool(workers, initializer=encoder.initializer) as pool:
        for document, lengths, _ in pool.imap(encoder.encode, lines, 32):
            builder.add_document(document, lengths)
        pool.close()
        pool.join()  # so that the time of the processes counts
    builder.finalize(f"{prefix}.idx")
    return name


def native(megatron, folder, source, prefix, workers):
    subprocess.run([megatron, "preprocess_data", "--input", source, "--output-prefix", prefix, "--tokenizer-type",
                    "HuggingFaceTokenizer", "--tokenizer-model", folder, "--append-eod", "--workers", str(workers), "--log-interval",
                    "1000000000"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measured(work):
    """Seconds by the clock and on the cores, and the result."""
    def on_cores():
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    wall, cores = time.monotonic(), on_cores()
    result = work()
    return time.monotonic() - wall, on_cores() - cores, result


def write_input(options, path):
    import make_tokenizers
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in options.text) if options.text \
        else make_tokenizers.python_sources()
    left = options.megabytes * 1_000_000
    with open(path, "w", encoding="utf-8") as file:
        for text in texts:
            for begin in range(0, len(text), 4000):
                left -= file.write(json.dumps({"text": text[begin:begin + 4000]}, ensure_ascii=False) + "\n")
                if left <= 0:
                    return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megatron")
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, nargs="+")
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source, model = folder / "input.jsonl", folder / "model"
        write_input(options, source)
        model.mkdir()
        (model / "tokenizer.json").write_bytes(options.tokenizer.read_bytes())
        eod = tokenizer.id_to_token(max(tokenizer.get_added_tokens_decoder()))
        (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": eod}))
        builder_of(str(folder / "first.bin"))  # imports take seconds and are no work on the corpus
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(measured(lambda: native(options.megatron, str(model), str(source), str(folder / "ours"), options.workers)))
            theirs.append(measured(lambda: megatron_loop(str(options.tokenizer), source, folder / "theirs", options.workers)))
        if (folder / "ours_text_document.bin").read_bytes() != (folder / "theirs.bin").read_bytes():
            sys.exit("the .bin files differ")
        size = source.stat().st_size / 1e6
        print(f"{size:.1f} MB of JSON lines, {options.workers} workers, the loop writes with {theirs[0][2]}\n\n"
              "| | seconds by the clock | MB/s | seconds on the cores | MB/s of a core |\n|---|---|---|---|---|")
        for label, runs in [("megatron preprocess_data", ours), ("Megatron's loop", theirs)]:
            wall, cores = min(run[0] for run in runs), min(run[1] for run in runs)
            print(f"| {label} | {wall:.2f} | {size / wall:.1f} | {cores:.2f} | {size / cores:.1f} |")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"\nlargest resident set of any process: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
