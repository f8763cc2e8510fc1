"""Compares `megatron tokenize` with the packages tokenizers, tiktoken and sentencepiece on texts that it makes up.

    compare_tokenizers.py MEGATRON FIXTURES [--megabytes N] [--strings N] [--ids N] [--cases NAME...] [--seed N]

FIXTURES is a folder of make_tokenizers.py. Each case encodes documents (--megabytes: the standard library, many scripts, long
white space, control characters, special tokens inside), fuzzed strings (--strings), lists of random ids to decode (--ids) and
texts that are not UTF-8, which both sides must reject at the same byte. Prints a line for each case and the first differences;
exits with 1 if there is one. compare_tokenizers.sh makes the fixtures and runs this.
"""

import argparse
import base64
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import make_tokenizers

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tokenizers"))
import tokenizer_answers  # noqa: E402

Case = collections.namedtuple("Case", "name flags special vocab_size encode decode")
BATCH_BYTES, BATCH_STRINGS, SHOWN_DIFFERENCES = 4_000_000, 20_000, 5


def hugging_face_case(name, path, flags=None):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(path))
    special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    return Case(name, flags or ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", str(path)], special,
                tokenizer.get_vocab_size(), lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(texts)],
                lambda rows: tokenizer.decode_batch(rows, skip_special_tokens=False))


def sentencepiece_case(name, path):
    from sentencepiece import SentencePieceProcessor
    processor = SentencePieceProcessor(model_file=str(path))
    return Case(name, ["--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model", str(path)], ["<s>", "</s>"],
                processor.vocab_size(), processor.encode, processor.decode)


def tiktoken_case(name, folder):
    from tiktoken import Encoding
    tokens = [base64.b64decode(line.split()[0]) for line in (folder / "o200k.tiktoken").read_text().splitlines()]
    special = ["<|endoftext|>", "<|endofprompt|>"]
    encoding = Encoding("x", pat_str=(folder / "o200k.pattern").read_text(), mergeable_ranks={t: i for i, t in enumerate(tokens)},
                        special_tokens={token: len(tokens) + i for i, token in enumerate(special)})
    flags = ["--tokenizer-type", "TikTokenizer", "--tokenizer-model", str(folder / "o200k.tiktoken"), "--tiktoken-pattern", "o200k",
             "--tokenizer-special-tokens", *special]
    return Case(name, flags, special, encoding.n_vocab,
                lambda texts: encoding.encode_batch(texts, num_threads=2, allowed_special="all"), encoding.decode_batch)


def megatron_tiktoken_case(name, folder):
    """Megatron's TikTokenizer: 1,000 special tokens, then the ranks."""
    from tiktoken import Encoding
    tokens = [base64.b64decode(row["token_bytes"]) for row in json.loads((folder / "vocabulary.json").read_text())]
    named = ["<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"]
    special = named + [f"<SPECIAL_{i}>" for i in range(len(named), 1000)]
    v2 = make_tokenizers.O200K_PATTERN.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
    encoding = Encoding("x", pat_str=v2, mergeable_ranks={t: i + 1000 for i, t in enumerate(tokens)},
                        special_tokens={token: i for i, token in enumerate(special)})
    flags = ["--tokenizer-type", "TikTokenizer", "--tokenizer-model", str(folder / "vocabulary.json"), "--vocab-size",
             str(len(tokens) + 1000)]
    return Case(name, flags, named, encoding.n_vocab,
                lambda texts: encoding.encode_batch(texts, num_threads=2, allowed_special="all"), encoding.decode_batch)


def cases(folder):
    for style in ["gpt2", "llama3", "qwen2", "o200k", "deepseek", "llama2", "bert", "t5"]:
        yield style, lambda: hugging_face_case(style, folder / "tokenizers" / f"{style}.json")
    yield "gpt2-files", lambda: hugging_face_case(
        "gpt2-files", folder / "tokenizers" / "gpt2.json",
        ["--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", str(folder / "gpt2/vocab.json"), "--merge-file",
         str(folder / "gpt2/merges.txt")])
    yield "bert-files", lambda: hugging_face_case(
        "bert-files", folder / "tokenizers" / "bert.json",
        ["--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", str(folder / "bert.txt")])
    yield "llama2-sentencepiece", lambda: sentencepiece_case("llama2-sentencepiece", folder / "llama2.model")
    yield "t5-sentencepiece", lambda: sentencepiece_case("t5-sentencepiece", folder / "t5.model")
    yield "o200k-tiktoken", lambda: tiktoken_case("o200k-tiktoken", folder)
    yield "megatron-tiktoken", lambda: megatron_tiktoken_case("megatron-tiktoken", folder)


def any_text(rnd):
    """Code points of any kind, also those that Unicode has not assigned."""
    ranges = [(0, 0x80), (0, 0x250), (0x300, 0x370), (0x2000, 0x2070), (0x3000, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000),
              (0x10000, 0x110000)]
    return "".join(chr(rnd.randrange(*rnd.choice(ranges))) for _ in range(rnd.randint(1, 12)))


def fuzzed_string(rnd, special):
    parts = [any_text(rnd) if rnd.random() < 0.1 else tokenizer_answers.part(rnd, special) for _ in range(rnd.randint(1, 10))]
    text = "".join(parts)
    if rnd.random() < 0.3:  # swaps and doubles characters
        characters = list(text)
        for _ in range(rnd.randint(1, 4)):
            a, b = rnd.randrange(len(characters)), rnd.randrange(len(characters))
            characters[a], characters[b] = characters[b], characters[a] * rnd.choice([1, 1, 2])
        text = "".join(characters)
    return text


def documents(rnd, special, size):
    sources = list(make_tokenizers.python_sources())
    made_up = make_tokenizers.made_up_text(rnd, size)
    while size > 0:
        kind = rnd.randrange(4)
        if kind == 0:
            source = rnd.choice(sources)
            begin = rnd.randrange(len(source) + 1)
            text = source[begin:begin + rnd.randint(1, 20_000)]
        elif kind == 1:
            text = "".join(fuzzed_string(rnd, special) for _ in range(rnd.randint(1, 60)))
        else:
            text = "".join(next(made_up, "") for _ in range(rnd.randint(1, 10)))
            for _ in range(rnd.randint(0, 3)):
                place = rnd.randrange(len(text) + 1)
                text = text[:place] + tokenizer_answers.part(rnd, special) + text[place:]
        size -= len(text.encode())
        yield text


def batches(texts, max_bytes, max_count):
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= max_bytes or len(batch) == max_count:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Comparison:
    def __init__(self, megatron, case, folder):
        self.megatron, self.case = megatron, case
        self.input = folder / "input.jsonl"
        self.strings = self.bytes = self.id_lists = self.differences = 0

    def rows(self, objects, *flags):
        with open(self.input, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in objects)
        command = [self.megatron, "tokenize", *self.case.flags, "--input", str(self.input), "--input-format", "jsonl", "--json", *flags]
        result = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def differ(self, what, given, expected, got):
        self.differences += 1
        if self.differences <= SHOWN_DIFFERENCES:
            same = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), min(len(expected), len(got)))
            begin = max(0, same - 3)
            print(f"  {self.case.name}: {what} of {given!r:.300} differ from place {same} on: the library gives "
                  f"{expected[begin:same + 5]!r}, megatron {got[begin:same + 5]!r}", flush=True)

    def encode(self, texts):
        rows = self.rows({"text": text} for text in texts)
        expected = self.case.encode(texts)
        decoded = self.case.decode(expected)
        if len(rows) != len(texts):
            raise RuntimeError(f"{len(texts)} texts gave {len(rows)} lines")
        for text, row, ids, string in zip(texts, rows, expected, decoded):
            self.strings += 1
            self.bytes += len(text.encode())
            if row["ids"] == ids and row["decoded"] == string:
                continue
            if row["ids"] != ids:
                self.differ("ids", text, ids, row["ids"])
            else:
                self.differ("decoded text", text, string, row["decoded"])

    def decode(self, lists):
        rows = self.rows(({"ids": ids} for ids in lists), "--decode")
        for ids, row, expected in zip(lists, rows, self.case.decode(lists)):
            self.id_lists += 1
            if row["decoded"] != expected:
                self.differ("decoded text", ids, expected, row["decoded"])

    def reject(self, content):
        """Python cannot even read such a text: both name the same byte."""
        self.input.write_bytes(content)
        command = [self.megatron, "tokenize", *self.case.flags, "--input", str(self.input), "--input-format", "text"]
        result = subprocess.run(command, capture_output=True)
        try:
            content.decode()
            raise RuntimeError("the text is UTF-8")
        except UnicodeDecodeError as error:
            self.strings += 1
            if result.returncode == 0 or f"at offset {error.start}." not in result.stderr.decode():
                self.differ("bytes", content, f"error at offset {error.start}", result.stderr.decode() or "no error")


def compare(megatron, case, options, folder):
    rnd = random.Random(f"{options.seed} {case.name}")
    comparison = Comparison(megatron, case, folder)
    for texts in batches(documents(rnd, case.special, options.megabytes * 1_000_000), BATCH_BYTES, BATCH_STRINGS):
        comparison.encode(texts)
    for texts in batches((fuzzed_string(rnd, case.special) for _ in range(options.strings)), BATCH_BYTES, BATCH_STRINGS):
        comparison.encode(texts)
    lists = ([rnd.randrange(case.vocab_size) for _ in range(rnd.randint(0, 20))] for _ in range(options.ids))
    for batch in batches(lists, BATCH_BYTES, BATCH_STRINGS):
        comparison.decode(batch)
    for invalid in [b"\xff", b"\xc3", b"a\xe4\xb8", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80"]:
        comparison.reject(b"ascii \xc3\xa4 " + invalid + rnd.choice([b"", b" more"]))
    print(f"{case.name:22} {comparison.strings} texts, {comparison.bytes / 1e6:.1f} MB, {comparison.id_lists} lists of ids: "
          f"{comparison.differences} differences", flush=True)
    return comparison.differences


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megatron")
    parser.add_argument("fixtures", type=pathlib.Path)
    parser.add_argument("--megabytes", type=int, default=1, help="of documents, for each case")
    parser.add_argument("--strings", type=int, default=5000, help="that are fuzzed, for each case")
    parser.add_argument("--ids", type=int, default=2000, help="lists to decode, for each case")
    parser.add_argument("--cases", nargs="+", help="names; default: all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    differences = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in cases(options.fixtures):
            if not options.cases or name in options.cases:
                differences += compare(options.megatron, make(), options, pathlib.Path(folder))
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
