"""Writes tokenizers of a few tokens with the steps of public models, and their expected tokens.

`llm/tests/tokenizers/steps.json` contains those of the package `tokenizers`. `spaces.json`,
`across.model`, `suffixes.model`, `characters.model`, `words.model`, `rows.model` and
`mapped_own.model` are SentencePiece's.

    python tokenizer_steps.py
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "tokenizers"
TEXTS = (
    "",
    " ",
    "the word, words and sword",
    "  two   words\n",
    "the<s>word</s> <s>the",
    "ΟΔΟΣ the ΟΔΟΣ",
    "a_b__c the_end",
    "the\u00a0's\t's",
    "é\x00A😀",
    "<|x|> the <|x|>\n<|y|> word",
)

LETTERS = "abcdefghijklmnopqrst"
ROWS = tuple(
    letter * count for letter in ("a", "b", "ab", "aab") for count in (2, 3, 5, 8, 13, 31, 64)
)


# Characters that are removed or become spaces, characters that resemble them, and texts that
# several steps lengthen.
CLEANED = (
    "the\x03\x7fword",
    "the\tword\x0bthe\r\nword",
    "\x00the\u200bword\ufffd",
    "the\u0378word \ue000the\u00ad",
    "THE ``ẂORD'' ﷺ\u3000İ",
)


def letters(*words: str) -> dict[str, int]:
    alphabet = sorted(set("".join(words)) | set("abcdefghijklmnopqrstuvwxyz,_'"))
    return {piece: id for id, piece in enumerate(["<unk>", "<s>", "</s>", *alphabet, *words])}


def pairs(byte_level: bool) -> Tokenizer:
    """Merges for "th", "the", "wo", "wor", "word" and "'s"; optionally with all bytes."""
    merges = [("t", "h"), ("th", "e"), ("w", "o"), ("wo", "r"), ("wor", "d"), ("'", "s")]
    made = [left + right for left, right in merges]
    pieces = ["<unk>", "<s>", "</s>"]
    pieces += (
        sorted(pre_tokenizers.ByteLevel.alphabet())
        if byte_level
        else list("▁abcdefghijklmnopqrstuvwxyz,'<>/|")
    )
    vocab = {piece: id for id, piece in enumerate(pieces + made)}
    made = models.BPE(vocab=vocab, merges=merges, **({} if byte_level else {"unk_token": "<unk>"}))
    return Tokenizer(made)


WRITTEN = (
    "the éA, éA",
    "the 漢かカーthe",
    "  the б 漢1a2",
    "   ",
    "б\u0378a e\u0301the",
    "the\t\nword \u0378\u0378 the ",
)


def special(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def made() -> dict[str, Tokenizer]:
    all = {}
    bytes_ = all["byte_level"] = special(pairs(True))
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bytes_.decoder = decoders.ByteLevel()

    # Replacement texts are literal; `\w` matches letters, marks and digits, but no joiners.
    literal = all["literal"] = special(pairs(True))
    literal.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("the", "$0"),
            normalizers.Replace(Regex(r"\W(é)"), "<$1>"),
            normalizers.Replace(Regex(r"\w①"), "x"),
        ]
    )
    literal.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[\w\n]+"), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    literal.decoder = decoders.ByteLevel()

    # "words" has no merge, and "wo" has a lower priority than merges of it.
    merges = [
        ("t", "h"),
        ("th", "e"),
        ("wo", "rd"),
        ("o", "r"),
        ("r", "d"),
        ("w", "o"),
        ("th", "e"),
    ]
    vocab = {
        piece: id
        for id, piece in enumerate(
            ["<unk>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
        )
    }
    for piece in [left + right for left, right in merges] + ["words", "Ġthe"]:
        vocab.setdefault(piece, len(vocab))
    untold = all["untold"] = special(Tokenizer(models.BPE(vocab=vocab, merges=merges)))
    untold.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    untold.decoder = decoders.ByteLevel()
    untold = json.loads(untold.to_str())
    untold["model"]["ignore_merges"] = True
    all["untold_whole"] = Tokenizer.from_str(json.dumps(untold))

    added = all["added"] = special(pairs(True))
    added.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    added.decoder = decoders.ByteLevel()
    added.add_tokens(
        [
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("<|x|>", lstrip=True),
            AddedToken("<|y|>", rstrip=True, special=True),
        ]
    )

    lower = all["lower"] = special(pairs(True))
    lower.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    lower.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    lower.decoder = decoders.ByteLevel()
    lower.add_tokens([AddedToken("word", single_word=True, normalized=True)])

    words = all["words"] = Tokenizer(
        models.WordLevel(letters("the", "word", "words", "and", "two"), unk_token="<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens(["<s>", "</s>"])

    delimited = all["delimited"] = Tokenizer(
        models.WordLevel(letters("the", "end"), unk_token="<unk>")
    )
    delimited.pre_tokenizer = pre_tokenizers.CharDelimiterSplit("_")

    parts = {
        piece: id
        for id, piece in enumerate(
            ["[UNK]", "the", "word", "##s", "and", ",", "s", "##word", "a", "b"]
        )
    }
    pieces = all["word_pieces"] = Tokenizer(models.WordPiece(parts, unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    pieces.decoder = decoders.WordPiece()
    pieces.add_special_tokens(["[UNK]", "<s>"])

    scored = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)] + [
        (f"<0x{byte:02X}>", 0.0) for byte in range(256)
    ]
    scored += [
        ("▁", -3.0),
        ("▁the", -2.0),
        ("▁word", -2.5),
        ("s", -3.5),
        ("A", -4.0),
        ("e", -4.5),
        ("\n", -5.0),
    ]
    unigrams = models.Unigram(scored, unk_id=0, byte_fallback=True)
    fallback = all["unigram_bytes"] = special(Tokenizer(unigrams))
    fallback.pre_tokenizer = pre_tokenizers.Metaspace()
    fallback.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])

    t5 = all["t5"] = special(
        Tokenizer(models.Unigram(scored[:3] + scored[-7:], unk_id=0, byte_fallback=False))
    )
    t5.normalizer = normalizers.Sequence(
        [normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])]
    )
    t5.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    t5.decoder = decoders.Metaspace()

    # The start of `SentencePieceUnigramTokenizer` in `tokenizers`, of BERT's normalizer, and of
    # XLNet's and ALBERT's with other steps instead of the map.
    plain = models.Unigram(
        scored[:3] + scored[-7:] + [("d", -4.5), ("w", -4.5), (" ", -5.0)],
        unk_id=0,
        byte_fallback=False,
    )
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    folding = [
        *quotes,
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.NFKC(),
        spaces,
    ]
    for name, steps in (
        ("nmt", [normalizers.Nmt(), normalizers.NFKC(), spaces]),
        ("cleaned", [normalizers.BertNormalizer()]),
        ("folded", folding),
    ):
        changed = all[name] = special(Tokenizer(plain))
        changed.normalizer = normalizers.Sequence(steps)
        changed.pre_tokenizer = pre_tokenizers.Metaspace()
        changed.decoder = decoders.Metaspace()

    # Segmentations of repeated characters whose scores differ by rounding only.
    rows = [
        ("<unk>", 0.0),
        ("<s>", 0.0),
        ("</s>", 0.0),
        ("▁", -2.3),
        ("a", -1.1),
        ("aa", -2.2),
        ("aaa", -3.3000000000000003),
    ]
    rows += [("b", -0.7000000001), ("bb", -1.4000000002), ("ab", -1.8), ("▁a", -3.4), ("ba", -1.8)]
    ties = all["ties"] = special(Tokenizer(models.Unigram(rows, unk_id=0, byte_fallback=False)))
    ties.pre_tokenizer = pre_tokenizers.Metaspace()
    ties.decoder = decoders.Metaspace()

    # The example of the `tokenizers` tour, which has no decoder.
    tour = all["tour"] = special(pairs(False))
    tour.pre_tokenizer = pre_tokenizers.Whitespace()

    # Like CLIP: word ends are marked.
    ended = ["t", "h", "e", "w", "o", "r", "d", "s", ",", "<", ">", "|", "x", "y"]
    vocab = [
        "<unk>",
        *ended,
        *(piece + "</w>" for piece in ended),
        "th",
        "the</w>",
        "wo",
        "wor",
        "word</w>",
        "word",
        "words</w>",
    ]
    merges = [
        ("t", "h"),
        ("th", "e</w>"),
        ("w", "o"),
        ("wo", "r"),
        ("wor", "d</w>"),
        ("wor", "d"),
        ("word", "s</w>"),
    ]
    vocab = {piece: id for id, piece in enumerate(vocab)}
    suffix = models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", end_of_word_suffix="</w>")
    suffixed = all["suffixed"] = Tokenizer(suffix)
    suffixed.add_special_tokens(["<unk>"])
    suffixed.pre_tokenizer = pre_tokenizers.Whitespace()
    suffixed.decoder = decoders.BPEDecoder(suffix="</w>")

    # Every piece has a merge, but "the" is unreachable because "he" is merged first.
    vocab = {
        piece: id
        for id, piece in enumerate(
            ["<unk>", *"abcdefghijklmnopqrstuvwxyz,'<>/|", "he", "th", "the"]
        )
    }
    unreached = models.BPE(
        vocab=vocab, merges=[("h", "e"), ("t", "h"), ("th", "e")], unk_token="<unk>"
    )
    all["unreached"] = Tokenizer(unreached)
    all["unreached"].pre_tokenizer = pre_tokenizers.Whitespace()

    # "\\<" and "\\>" match word ends in other engines, and characters here.
    escaped = all["escaped"] = special(pairs(False))
    escaped.normalizer = normalizers.Replace(Regex(r"\<|[\>]"), "$'")
    escaped.decoder = decoders.Sequence(
        [
            decoders.Fuse(),
            decoders.Replace(Regex(r"(w)|\<|\>"), "<$1>"),
            decoders.Replace("h", "$0"),
        ]
    )

    # Bytes are renamed before the split, which then sees the names' letters.
    named = all["named_bytes"] = special(pairs(True))
    named.normalizer = normalizers.Sequence(
        [normalizers.Replace("two", "the"), normalizers.ByteLevel(), normalizers.Replace("Ġw", "Ġ")]
    )
    named.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation(), pre_tokenizers.FixedLength(5)]
    )
    named.decoder = decoders.ByteLevel()
    named.add_tokens(
        [
            AddedToken("é\x00", normalized=True),
            AddedToken("éA", normalized=True),
            AddedToken("A▁", normalized=False),
        ]
    )
    named = all["named_bytes_listed"] = Tokenizer.from_str(all["untold"].to_str())
    named.normalizer = normalizers.ByteLevel()
    named.pre_tokenizer = pre_tokenizers.Split("Ġ", "merged_with_next")
    all["named_bytes_twice"] = Tokenizer.from_str(all["byte_level"].to_str())
    all["named_bytes_twice"].normalizer = normalizers.Sequence([normalizers.ByteLevel()])

    fixed = all["fixed_length"] = special(pairs(True))
    fixed.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(" ", "merged_with_next"),
            pre_tokenizers.FixedLength(3),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    fixed.decoder = decoders.ByteLevel()

    scripts = all["scripts"] = special(pairs(True))
    scripts.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.UnicodeScripts(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    scripts.decoder = decoders.ByteLevel()

    # Script boundaries with XLM's unigram vocabularies, and with words.
    scripts = all["scripts_of_words"] = Tokenizer(
        models.WordLevel(letters("the", "word", "漢かカー", "the "), unk_token="<unk>")
    )
    scripts.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.UnicodeScripts(), pre_tokenizers.UnicodeScripts()]
    )

    # Two adjacent merges of the same piece, the first of which comes second in the word.
    vocab = {
        piece: id
        for id, piece in enumerate(
            ["<unk>", *"abcdefghijklmnopqrstuvwxyz,'<>/|", "th", "ht", "tht"]
        )
    }
    beside = models.BPE(
        vocab=vocab, merges=[("t", "h"), ("h", "t"), ("t", "ht"), ("th", "t")], unk_token="<unk>"
    )
    all["beside"] = Tokenizer(beside)
    all["beside"].pre_tokenizer = pre_tokenizers.Whitespace()

    clipped = all["cut_by_pattern"] = special(pairs(False))
    clipped.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "removed", invert=True)
    return all


def write_steps() -> None:
    lines = []
    for name, tokenizer in made().items():
        cases = []
        for text in TEXTS + {
            "ties": ROWS,
            "suffixed": ("the" * 70, "word" * 70),
            "literal": ("word²½", "word²½ Ⅷ①", "a\u200dword", "हिन्दी the_e\u0301", " é"),
            "nmt": CLEANED,
            "cleaned": CLEANED,
            "folded": CLEANED,
            "scripts": WRITTEN,
            "scripts_of_words": WRITTEN,
            "fixed_length": WRITTEN,
            "named_bytes": WRITTEN,
            "beside": ("thttht", "ththththt", "htthtth"),
        }.get(name, ()):
            tokenizer.encode_special_tokens = False
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append(
                {"text": text, "ids": ids, "plain": plain, "decoded": tokenizer.decode(ids)}
            )
        tokenizer.encode_special_tokens = False
        file = json.loads(tokenizer.to_str())
        lines.append(
            json.dumps({"name": name, "tokenizer": file, "cases": cases}, ensure_ascii=False)
        )
    (FOLDER / "steps.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def write_by_hand() -> None:
    """Writes `rows.model`, where splits into a one- and a two-character piece are equally likely in
    either order, and `mapped_own.model`, whose map does not apply to user-defined pieces.
    """
    numbers = random.Random(1)
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.UNIGRAM
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    for name, kind in (("<unk>", 2), ("<s>", 3), ("</s>", 3)):
        model.pieces.add(piece=name, score=0, type=kind)
    for letter in LETTERS:
        score = numbers.uniform(-9, -5)
        model.pieces.add(piece=letter, score=score)
        model.pieces.add(piece=letter * 2, score=score - numbers.uniform(1, 3))
    (FOLDER / "rows.model").write_bytes(model.SerializeToString())
    model = sentencepiece_model_pb2.ModelProto.FromString((FOLDER / "mapped.model").read_bytes())
    for piece in ("ﬁ", "ﬁn", "A½", "\n"):
        model.pieces.add(
            piece=piece, score=0, type=sentencepiece_model_pb2.ModelProto.SentencePiece.USER_DEFINED
        )
    (FOLDER / "mapped_own.model").write_bytes(model.SerializeToString())


def write_sentencepiece() -> None:
    made = io.BytesIO()
    sentences = [
        "of the people, by the people, for the people",
        "of the word and of the words",
        "for the word of the people",
    ]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=made,
        model_type="bpe",
        vocab_size=48,
        split_by_whitespace=False,
        # No normalization: the tables of other rules have 240 kB.
        normalization_rule_name="identity",
        minloglevel=2,
    )
    (FOLDER / "across.model").write_bytes(made.getvalue())
    behind = {"treat_whitespace_as_suffix": True, "remove_extra_whitespaces": False}
    for kind, file, others in (
        ("char", "characters.model", {}),
        ("word", "words.model", {}),
        ("bpe", "suffixes.model", behind),
    ):
        made = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=made,
            model_type=kind,
            vocab_size={"char": 24, "word": 12, "bpe": 36}[kind],
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            minloglevel=2,
            **others,
        )
        (FOLDER / file).write_bytes(made.getvalue())
    forms = []
    for name, texts in (
        ("across.model", ["of the people", "for the words, of the word", "", " ", "   of  the "]),
        # Characters in the map are replaced whatever follows them.
        ("mapped.model", ["", " ", "  ", "ﬁ\u0301ne", "A\u200d A\u0300\u0301b", "ﬂ\u200d½"]),
        ("characters.model", ["of the people", "Zoë's people", "", " ", "  of  the "]),
        ("suffixes.model", ["of the people", "ΣΑΣ Zoë's  people ", "", " "]),
        (
            "words.model",
            ["of the people", "for the unknown people, of the word", "word", "", " ", "  of  the "],
        ),
        ("mapped_own.model", ["ﬁne ﬂ", "A½ ½A", "a\n\nﬁ", "\nA", " \n "]),
        ("rows.model", [letter * count for letter in LETTERS for count in (3, 5, 8)]),
        # Segmentations of repeated characters are equally likely except for rounding.
        (
            "unigram.model",
            [
                letter * count
                for letter in ("a", "the", "o", "e ", "日", "\n")
                for count in (1, 2, 7, 33, 130)
            ],
        ),
        ("bpe.model", ["".join(bytes([byte]).decode("latin1") for byte in range(1, 256))]),
    ):
        model = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / name))
        cases = [
            {"text": given, "ids": (ids := model.encode(given)), "decoded": model.decode(ids)}
            for given in texts
        ]
        forms.append(json.dumps({"file": name, "cases": cases}, ensure_ascii=False))
    (FOLDER / "spaces.json").write_text("[\n" + ",\n".join(forms) + "\n]\n")


if __name__ == "__main__":
    write_steps()
    write_by_hand()
    write_sentencepiece()
