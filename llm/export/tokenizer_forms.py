"""Writes `llm/tests/tokenizers/`: small tokenizers of all formats, with the tokens that their own
Python packages produce.

    python tokenizer_forms.py TEXT TOKENIZER_JSON

TEXT is the folder of the text (`text.py`). TOKENIZER_JSON is the tokenizer of `train.py`, from
which the tiktoken and Tekken files are derived.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import sys
import tempfile
from pathlib import Path

import sentencepiece
import text
import tiktoken
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer
from train import PIECES

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "tokenizers"
TEXTS = (
    "",
    "Hello",
    " Hello  world ",
    "In the beginning, God created the heavens and the earth.",
    "It's 12345 o'clock; isn't it?\n\n  Yes\tit is.\r\n",
    "Größe, naïve, 日本語のテキスト, 😀👍🏽 and \u00a0 spaces",
    "e\u0301 ﬁ Ⅷ",
    "<|im_start|>user\nTell me<|im_end|>\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "</s> <s> <unk>",
)


def bytes_of(piece: str) -> bytes:
    """Bytes of a piece in the byte-level alphabet."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    table = {chr(byte): byte for byte in visible} | {
        chr(256 + at): byte for at, byte in enumerate(others)
    }
    return bytes(table[character] for character in piece)


def ranks(tokenizer: Tokenizer) -> dict[bytes, int]:
    pieces = sorted(
        (id, piece) for piece, id in tokenizer.get_vocab().items() if piece not in text.SPECIAL
    )
    made = [bytes_of(piece) for _, piece in pieces]
    # Some readers require single bytes in the order of their values; the others accept any order.
    made = sorted(piece for piece in made if len(piece) == 1) + [
        piece for piece in made if len(piece) > 1
    ]
    return {piece: rank for rank, piece in enumerate(made)}


def write_tiktoken(mergeable: dict[bytes, int]) -> tiktoken.Encoding:
    lines = [f"{base64.b64encode(piece).decode()} {rank}\n" for piece, rank in mergeable.items()]
    (FOLDER / "llama3.tiktoken").write_text("".join(lines))
    # Llama 3's special tokens; the first two are tested.
    special = {"<|begin_of_text|>": len(mergeable), "<|end_of_text|>": len(mergeable) + 1}
    return tiktoken.Encoding(
        "llama3", pat_str=PIECES, mergeable_ranks=mergeable, special_tokens=special
    )


def write_tekken(mergeable: dict[bytes, int]) -> tiktoken.Encoding:
    # Mistral's special tokens since version 7 of the format, which names more than earlier ones.
    names = [
        "<unk>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
    ]
    names += [
        "[/TOOL_RESULTS]",
        "[TOOL_CALLS]",
        "[IMG]",
        "<pad>",
        "[IMG_BREAK]",
        "[IMG_END]",
        "[PREFIX]",
        "[MIDDLE]",
    ]
    names += ["[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"]
    config = {
        "pattern": PIECES,
        "num_vocab_tokens": len(mergeable),
        "default_vocab_size": len(mergeable) + len(names),
        "default_num_special_tokens": len(names),
        "version": "v7",
    }
    pieces = [
        {"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
        for piece, rank in mergeable.items()
    ]
    special = [
        {"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(names)
    ]
    whole = {"config": config, "vocab": pieces, "special_tokens": special}
    (FOLDER / "tekken.json").write_text(json.dumps(whole, separators=(",", ":")) + "\n")
    # Tokens follow the special ones.
    shifted = {piece: rank + len(names) for piece, rank in mergeable.items()}
    return tiktoken.Encoding("tekken", pat_str=PIECES, mergeable_ranks=shifted, special_tokens={})


def write_sentencepiece(sentences: list[str], kind: str) -> sentencepiece.SentencePieceProcessor:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        path.write_text("\n".join(sentences))
        sentencepiece.SentencePieceTrainer.train(
            input=str(path),
            model_prefix=str(Path(folder) / "model"),
            model_type=kind,
            vocab_size=600,
            byte_fallback=True,
            character_coverage=1.0,
            # No normalization: the tables of other rules have 240 kB.
            normalization_rule_name="identity",
            remove_extra_whitespaces=kind != "bpe",
            minloglevel=2,
            num_threads=1,
        )
        model = (Path(folder) / "model.model").read_bytes()
    (FOLDER / f"{kind}.model").write_bytes(model)
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def write_mapped() -> None:
    """A small model with a character map, and its tokens of texts that the map changes."""
    rules = {"ﬁ": "fi", "ﬂ": "fl", "½": "1/2", "ﷺ": "صلى الله عليه وسلم", "A": "a"}
    spelled = lambda characters: " ".join(f"{ord(character):X}" for character in characters)
    lines = [
        "the cat sat on the mat and looked at the dog",
        "in the beginning was the word",
        "ﬁne ﬂowers and ½ a cup ﷺ",
    ]
    made = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.tsv"
        path.write_text(
            "".join(f"{spelled(found)}\t{spelled(rule)}\n" for found, rule in rules.items())
        )
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 20),
            model_writer=made,
            vocab_size=70,
            model_type="unigram",
            character_coverage=1.0,
            hard_vocab_limit=False,
            normalization_rule_tsv=str(path),
            minloglevel=2,
            num_threads=1,
        )
    (FOLDER / "mapped.model").write_bytes(made.getvalue())
    # The same under the name of the usual rule: the map in the file applies, not the one of that
    # name.
    named = sentencepiece_model_pb2.ModelProto.FromString(made.getvalue())
    named.normalizer_spec.name = "nmt_nfkc"
    (FOLDER / "mapped_named.model").write_bytes(named.SerializeToString())
    model = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    texts = ["the Apple", "ﬁne ﬂowers", "½ A cup", "ﷺ", "ﷺﬁ½ﬂA"]
    cases = [{"text": given, "ids": model.encode(given)} for given in texts]
    (FOLDER / "mapped.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n")


def write_llama2c(model: sentencepiece.SentencePieceProcessor) -> None:
    """The formats of llama2.c's `tokenizer.py` and of ExecuTorch, which prepends three integers."""
    pieces = []
    for id in range(model.vocab_size()):
        piece = model.id_to_piece(id)
        piece = {model.bos_id(): "\n<s>\n", model.eos_id(): "\n</s>\n"}.get(id, piece)
        pieces.append((model.get_score(id), piece.replace("▁", " ").encode()))
    body = b"".join(struct.pack("<fI", score, len(piece)) + piece for score, piece in pieces)
    longest = max(len(piece) for _, piece in pieces)
    (FOLDER / "llama2c.bin").write_bytes(struct.pack("<I", longest) + body)
    header = struct.pack("<IIII", len(pieces), model.bos_id(), model.eos_id(), longest)
    (FOLDER / "llama2c_executorch.bin").write_bytes(header + body)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(sys.argv[2])
    mergeable = ranks(tokenizer)
    sentences = [verse for chapter in text.verses(Path(sys.argv[1]), 150) for verse in chapter]
    bpe, unigram = write_sentencepiece(sentences, "bpe"), write_sentencepiece(sentences, "unigram")
    write_llama2c(bpe)
    write_mapped()
    llama3, tekken = write_tiktoken(mergeable), write_tekken(mergeable)

    def case(name: str, encode, decode) -> dict:
        cases = []
        for given in TEXTS:
            ids = encode(given)
            cases.append({"text": given, "ids": ids, "decoded": decode(ids)})
        return {"file": name, "cases": cases}

    ordinary = lambda encoding: lambda given: encoding.encode(given, disallowed_special=())
    forms = [
        case(
            "tokenizer.json",
            lambda given: tokenizer.encode(given).ids,
            lambda ids: tokenizer.decode(ids),
        ),
        case("llama3.tiktoken", ordinary(llama3), llama3.decode),
        case("tekken.json", ordinary(tekken), tekken.decode),
        case("bpe.model", bpe.encode, bpe.decode),
        case("unigram.model", unigram.encode, unigram.decode),
        case("llama2c.bin", bpe.encode, bpe.decode),
        case("llama2c_executorch.bin", bpe.encode, bpe.decode),
    ]
    lines = ",\n".join(json.dumps(form, ensure_ascii=False) for form in forms)
    (FOLDER / "expected.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
