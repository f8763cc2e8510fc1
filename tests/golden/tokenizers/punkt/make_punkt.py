#!/usr/bin/env python3
"""Makes a Punkt model and the sentences that NLTK gives with it and without one.

    python make_punkt.py OUT        needs nltk 3.9

OUT/model/    the parameters, learnt from a text that this script makes, in the form of NLTK's punkt_tab
OUT/cases.json    texts, and their sentences: {"text", "trained", "trained_keep", "untrained", "untrained_keep"}; "keep" is
                  Megatron's --keep-newlines
"""
import json
import os
import random
import sys

from nltk.tokenize.punkt import PunktLanguageVars, PunktParameters, PunktSentenceTokenizer, PunktTrainer, save_punkt_params


class KeepNewlines(PunktLanguageVars):
    """Megatron's CustomLanguageVars: white space behind a sentence is a part of the match."""

    __slots__ = ()
    _period_context_fmt = r"""
        \S*
        %(SentEndChars)s
        \s*
        (?=(?P<after_tok>
            %(NonWord)s
            |
            (?P<next_tok>\S+)
        ))"""


WORDS = "the a of to dog house river light green walked quickly and but when fell under morning paper city war".split()
NAMES = "Smith Jones Bach Paris London Monday Ärzte Élan ΑΣ Ωμέγα".split()
SHORT = ["Mr.", "Dr.", "Prof.", "e.g.", "i.e.", "etc.", "No.", "U.S.", "a.m.", "v.-ch.", "St."]
STARTS = "The A However But In Then He She It When".split()


def training_text(rng):
    sentences = []
    for _ in range(1500):
        words = [rng.choice(STARTS)]
        for _ in range(rng.randint(3, 9)):
            kind = rng.random()
            if kind < 0.12:
                words += [rng.choice(SHORT), rng.choice(NAMES) if rng.random() < 0.7 else rng.choice(WORDS)]
            elif kind < 0.16:
                words += [rng.choice("JKLM") + ".", rng.choice(NAMES)]
            elif kind < 0.2:
                words += ["the", str(rng.randint(1, 30)) + ".", rng.choice(["May", "June"])]
            else:
                words.append(rng.choice(WORDS))
        sentences.append(" ".join(words) + rng.choice(["."] * 6 + ["?", "!"]))
    return " ".join(sentences)


FIXED = [
    "",
    " ",
    "\n\n",
    ".",
    "One. Two.",
    "Mr. Smith met Dr. Jones at 5 a.m. The dog fell.",
    "Very bad acting!!! I promise.",
    "He said (Sent1.) Sent2. \"Quoted.\" Next. 'Single.'  End",
    "Wait... what? No... But yes. And . . . then . . . . The end",
    "On the 5. May it fell. No. 5 is alive. U.S. troops. J. S. Bach. J. bach.",
    "3.14 is pi. -1,000.50. The end. 12. The",
    "Line one.\nLine two.\n\nParagraph. \t Tab.\r\nNext.",
    " Leading. Trailing. ",
    "No end",
    "a.b.c d.e. F",
    "End.) Next. End.]} -- Next. End.\"-- next. End.')",
    "What?! Really?? 'Yes.' (No.) [Maybe.] {So.} *Star.* @at. :colon. ;semi. Done",
    "Die Ärzte. Élan vital. ΑΣ. Ωμέγα ΑΣ. ǅ. ªb. ² x. Ⅷ. The _.",
    "x.\u2003Em space. y.\u0085NEL. z.\x1cFile. w.\u00a0Nbsp. v.\u3000The end.",
    "日本語。これは文です. そして. The",
    "e.g. the house etc. The river v.-ch. then. -- The. -. The",
    "........ ? ! . , ; : The. ... The ... the. .... The",
    "hello,world. hello, world. hello,. The ,the. A,) B.",
    "I.The. I. The. \u0130. The \u0130stanbul. Ta\u00df. Gross.",
]


def random_text(rng):
    parts = SHORT + NAMES + WORDS + STARTS + list(".?!,;:()[]{}'\"-*@") + ["..", "...", "--", ". .", "J.", "5.", "1,2", "Σ.", "aΣ.", "--.", "!?"]
    spaces = [" "] * 8 + ["", "", "\n", "\n\n", "  ", "\t", "\u00a0", "\x0b", "\x1d", "\r\n"]
    return "".join(rng.choice(parts) + rng.choice(spaces) for _ in range(rng.randint(1, 60)))


def main():
    out = sys.argv[1]
    num_random = int(sys.argv[2]) if len(sys.argv) > 2 else 150
    rng = random.Random(18)
    trainer = PunktTrainer()
    trainer.INCLUDE_ALL_COLLOCS = True
    trainer.train(training_text(rng))
    trained = trainer.get_params()
    model = os.path.join(out, "model")
    os.makedirs(model, exist_ok=True)
    for field in ("abbrev_types", "collocations", "sent_starters"):
        setattr(trained, field, sorted(getattr(trained, field)))
    trained.ortho_context = dict(sorted(trained.ortho_context.items()))
    save_punkt_params(trained, dir=model)
    from nltk.tokenize.punkt import load_punkt_params

    trained = load_punkt_params(model)
    splitters = {}
    for name, parameters in (("trained", trained), ("untrained", PunktParameters())):
        splitters[name] = PunktSentenceTokenizer(parameters)
        splitters[name + "_keep"] = PunktSentenceTokenizer(parameters, lang_vars=KeepNewlines())
    cases = []
    for text in FIXED + [random_text(rng) for _ in range(num_random)]:
        cases.append({"text": text, **{name: splitter.tokenize(text) for name, splitter in splitters.items()}})
    with open(os.path.join(out, "cases.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file, ensure_ascii=False, indent=0)


if __name__ == "__main__":
    main()
