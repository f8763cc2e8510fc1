"""Trains small tokenizers of the styles that large language models use, without any download.

    make_tokenizers.py FOLDER [--vocab-size N] [--megabytes N]

Writes into FOLDER: tokenizers/STYLE.json for the styles gpt2, llama3, qwen2, o200k, deepseek, llama2, bert and t5;
gpt2/vocab.json and gpt2/merges.txt; llama2.model and t5.model (SentencePiece); o200k.tiktoken with o200k.pattern;
vocabulary.json (Megatron's TikTokenizer); bert.txt (WordPiece). The training text is Python's standard library and made-up text
of many scripts. Needs the packages tokenizers and sentencepiece.
"""

import argparse
import base64
import json
import pathlib
import random
import sysconfig

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                  r"|\s+(?!\S)|\s+")
O200K_PATTERN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK_PATTERNS = [
    r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""]

ALPHABETS = ["abcdefghijklmnopqrstuvwxyz", "àâäçéèêëïîôöùûüßñøåłžšč", "αβγδεζηθικλμνξοπρσς", "абвгдежзийклмнопрст",
             "אבגדהוזחט", "ابتثجحخدذ", "कखगघचजटडतिाे", "กขคงจชซาิี", "あいうえおかきくアイウエオ", "的一是不了人我在有他这中大来上国",
             "가나다라마바사아자차"]


def python_sources():
    """The standard library, in a fixed order."""
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" not in path.parts:
            yield path.read_text(encoding="utf-8", errors="replace")


def made_up_text(rnd, characters):
    """Words of one script after another, with the frequencies of a natural language."""
    lexicons = [["".join(rnd.choice(alphabet) for _ in range(rnd.randint(1, 8))) for _ in range(3000)] for alphabet in ALPHABETS]
    while characters > 0:
        lexicon = rnd.choice(lexicons)
        words = [lexicon[min(int(rnd.paretovariate(0.8)), len(lexicon) - 1)] for _ in range(rnd.randint(5, 200))]
        text = " ".join(words) + rnd.choice([".\n", "!\n\n", " 12 345,67\n", " 😀🚀\r\n", "\t\n", "…   \n"])
        characters -= len(text)
        yield text


def corpus(megabytes):
    """Half of it code, half of it made-up text."""
    left = megabytes * 500_000
    for text in python_sources():
        yield text[:left]
        left -= len(text)
        if left <= 0:
            break
    yield from made_up_text(random.Random(1), megabytes * 250_000)


def byte_level_bpe(steps, special, options, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=options.vocab_size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(options.megabytes), trainer)
    return tokenizer


def splits(*patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    return steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


def with_bos(tokenizer, bos):
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B",
                                                             special_tokens=[(bos, tokenizer.token_to_id(bos))])
    return tokenizer


def bpe_styles(options):
    yield "gpt2", byte_level_bpe([pre_tokenizers.ByteLevel(add_prefix_space=False)], ["<|endoftext|>"], options)
    yield "llama3", with_bos(byte_level_bpe(splits(LLAMA3_PATTERN), ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], options,
                                            ignore_merges=True), "<|begin_of_text|>")
    yield "qwen2", byte_level_bpe(splits(LLAMA3_PATTERN.replace("{1,3}", "")), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                                  options, normalizer=normalizers.NFC())
    yield "o200k", byte_level_bpe(splits(O200K_PATTERN), ["<|endoftext|>", "<|endofprompt|>"], options)
    yield "deepseek", with_bos(byte_level_bpe(splits(*DEEPSEEK_PATTERNS), ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"], options),
                               "<｜begin▁of▁sentence｜>")


def llama2(options):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")  # keeps training from joining words
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(corpus(options.megabytes), trainers.BpeTrainer(
        vocab_size=options.vocab_size, special_tokens=special, show_progress=False, limit_alphabet=2000))
    saved = json.loads(tokenizer.to_str())
    saved["pre_tokenizer"] = None
    saved["added_tokens"] = saved["added_tokens"][:3]  # the bytes are plain entries
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return with_bos(tokenizer, "<s>")


def bert(options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(corpus(options.megabytes), trainers.WordPieceTrainer(
        vocab_size=options.vocab_size, special_tokens=special, show_progress=False, limit_alphabet=2000))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def t5(options):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"] + [f"<extra_id_{i}>" for i in range(10)]
    tokenizer.train_from_iterator(corpus(min(options.megabytes, 4)), trainers.UnigramTrainer(
        vocab_size=options.vocab_size, special_tokens=special, unk_token="<unk>", show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def byte_values():
    """The byte that each character of the byte-level alphabet stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def write_tiktoken(folder, tokenizer, num_special):
    """The vocabulary as ranks: the bytes, then the results of the merges in order. Megatron's JSON holds the same list."""
    values = byte_values()
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    tokens = [bytes([byte]) for byte in range(256)]
    known = set(tokens)
    for left, right in merges:
        token = bytes(values[c] for c in left + right)
        if token not in known:
            known.add(token)
            tokens.append(token)
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    (folder / "o200k.tiktoken").write_text("".join(lines), encoding="ascii")
    (folder / "o200k.pattern").write_text(O200K_PATTERN, encoding="ascii")
    rows = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode("utf-8", "replace")}
            for rank, token in enumerate(tokens)]
    (folder / "vocabulary.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / "vocabulary_size.txt").write_text(str(len(tokens) + num_special), encoding="ascii")


def train_sentencepiece(folder, options):
    import sentencepiece
    lines = (line for text in corpus(min(options.megabytes, 4)) for line in text.splitlines() if 0 < len(line) < 2000)
    lines = list(lines)
    for name, kind, more in [("llama2", "bpe", {"byte_fallback": True, "split_digits": True, "normalization_rule_name": "identity",
                                                "remove_extra_whitespaces": False}),
                             ("t5", "unigram", {})]:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(folder / name), model_type=kind,
                                                 vocab_size=min(options.vocab_size, 8000), character_coverage=0.9995,
                                                 minloglevel=2, num_threads=2, **more)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--vocab-size", type=int, default=16000)
    parser.add_argument("--megabytes", type=int, default=8, help="of training text")
    options = parser.parse_args()
    (options.folder / "tokenizers").mkdir(parents=True, exist_ok=True)
    for style, tokenizer in bpe_styles(options):
        tokenizer.save(str(options.folder / "tokenizers" / f"{style}.json"))
        if style == "gpt2":
            (options.folder / "gpt2").mkdir(exist_ok=True)
            tokenizer.model.save(str(options.folder / "gpt2"))
        if style == "o200k":
            write_tiktoken(options.folder, tokenizer, num_special=1000)
    for style, make in [("llama2", llama2), ("bert", bert), ("t5", t5)]:
        make(options).save(str(options.folder / "tokenizers" / f"{style}.json"))
    vocabulary = json.loads((options.folder / "tokenizers" / "bert.json").read_text(encoding="utf-8"))["model"]["vocab"]
    (options.folder / "bert.txt").write_text("".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.get)), encoding="utf-8")
    train_sentencepiece(options.folder, options)


if __name__ == "__main__":
    main()
