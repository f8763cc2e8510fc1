"""What reference tokenizers answer for made-up texts.

    tokenizer_answers.py hugging_face TOKENIZER_JSON SEED COUNT
    tokenizer_answers.py tiktoken DESCRIPTION_JSON SEED COUNT      description: pattern, special_tokens, ranks_file
    tokenizer_answers.py sentencepiece MODEL SEED COUNT

Prints JSON lines: text, ids, decoded. The texts mix scripts, marks, digits, white space, control characters, emoji and the
tokenizer's special tokens. Their characters are those whose class has been the same since Unicode 3.2, so that all libraries
agree about them, and emoji up to Unicode 8.
"""

import base64
import json
import pathlib
import random
import sys
import unicodedata

ASSIGNED = [chr(c) for c in range(0x110000)
            if not 0xD800 <= c < 0xE000 and unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Co")
            and unicodedata.ucd_3_2_0.category(chr(c)) == unicodedata.category(chr(c))]
SCRIPTS = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJ", "àâäçéèêëïîôöùûüßñøåłžšč", "αβγδεζηθικλμνξοπρσς", "абвгдежзийклмн",
           "אבגדהוזחט", "ابتثجحخدذ", "कखगघचजटडत", "กขคงจชซ", "あいうえおかきく", "アイウエオ", "的一是不了人我在有", "가나다라마바사", "①ﬁ㎞Ⅷ½²ǅ"]
SPACES = " \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u2003\u200a\u200b\u2028\u2029\u202f\u3000\ufeff"
MARKS = "\u0300\u0301\u0308\u0323\u0345\u05b0\u064b\u093c\u0e31\u20e3\ufe0f\u200d\u200c"
EMOJI = ["😀", "🚀", "👍🏽", "👨‍👩‍👧", "🇩🇪", "❤️", "☃", "1️⃣"]
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»–—…¿¡、。"
CODE = ["for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n", "def f(x):\n    return x ** 2\n\n", "<a href=\"x\">&nbsp;</a>\r\n"]


def part(rnd, special):
    kind = rnd.randrange(12)
    if kind < 3:
        script = rnd.choice(SCRIPTS)
        return "".join(rnd.choice(script) for _ in range(rnd.randint(1, 9))) + rnd.choice(["", " ", " ", ", ", "'s ", "."])
    if kind == 3:
        return "".join(rnd.choice(ASSIGNED) for _ in range(rnd.randint(1, 12)))
    if kind == 4:
        return rnd.choice(SPACES) * rnd.choice([1, 1, 2, 3, 17, 300]) + rnd.choice(["", rnd.choice(SPACES)])
    if kind == 5:
        return "".join(rnd.choice("aé字ا") + rnd.choice(MARKS) * rnd.randint(0, 2) for _ in range(rnd.randint(1, 6)))
    if kind == 6:
        return str(rnd.choice([rnd.randint(0, 9), rnd.randint(0, 10**9), "3.14", "1e-7", "٣٤٥", "0" * rnd.randint(1, 40)]))
    if kind == 7:
        return rnd.choice(EMOJI) * rnd.randint(1, 3)
    if kind == 8:
        return "".join(rnd.choice(PUNCTUATION) for _ in range(rnd.randint(1, 8)))
    if kind == 9:
        return "".join(rnd.choice("'sStTdDmM rRelLvV’") for _ in range(rnd.randint(2, 9)))
    if kind == 10 and special:
        token = rnd.choice(special)
        return rnd.choice([token, token, token * 2, token[:-1], token[1:], token.upper(), " " + token + " "])
    if kind == 11:
        return chr(rnd.randint(0, 0x1F)) + rnd.choice(CODE)
    return rnd.choice(["Hello", " world", "don't", "I'LL", "camelCase", "snake_case", "▁", "Ġ", "##a", "<0x0A>", "\ufffd"])


def texts(special, seed, count):
    rnd = random.Random(seed)
    for _ in range(count):
        yield "".join(part(rnd, special) for _ in range(rnd.randint(1, 10)))


def hugging_face(path):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    return special, lambda text: tokenizer.encode(text).ids, lambda ids: tokenizer.decode(ids, skip_special_tokens=False)


def tiktoken(path):
    from tiktoken import Encoding
    about = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    lines = (pathlib.Path(path).parent / about["ranks_file"]).read_text(encoding="utf-8").splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split(" ") for line in lines)}
    encoding = Encoding("x", pat_str=about["pattern"], mergeable_ranks=ranks, special_tokens=about["special_tokens"])
    return list(about["special_tokens"]), lambda text: encoding.encode(text, allowed_special="all"), encoding.decode


def sentencepiece(path):
    from sentencepiece import SentencePieceProcessor
    processor = SentencePieceProcessor(model_file=path)
    return ["<s>", "</s>"], processor.encode, processor.decode


def main():
    kind, path, seed, count = sys.argv[1:5]
    special, encode, decode = {"hugging_face": hugging_face, "tiktoken": tiktoken, "sentencepiece": sentencepiece}[kind](path)
    for text in texts(special, int(seed), int(count)):
        ids = encode(text)
        print(json.dumps({"text": text, "ids": ids, "decoded": decode(ids)}))


if __name__ == "__main__":
    main()
