"""Training text of the fixtures' language model.

It consists of the World English Bible (eBible.org), which is in the public domain, from Debian's
package `sword-text-web`, and of conversations made of its verses.

    apt-get download sword-text-web && dpkg -x sword-text-web*.deb FOLDER && pip install pysword
"""

from __future__ import annotations

import random
import re
from pathlib import Path

BEGIN, END, TURN, TURN_END = "<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (BEGIN, END, TURN, TURN_END)

# Frequent words, about which no questions are asked.
COMMON = {
    "about",
    "above",
    "after",
    "again",
    "against",
    "also",
    "although",
    "among",
    "another",
    "answer",
    "around",
    "because",
    "become",
    "before",
    "behold",
    "being",
    "both",
    "bring",
    "brought",
    "came",
    "children",
    "city",
    "come",
    "days",
    "didn",
    "does",
    "down",
    "each",
    "even",
    "every",
    "first",
    "from",
    "gave",
    "give",
    "given",
    "goes",
    "going",
    "great",
    "hand",
    "hands",
    "have",
    "having",
    "hear",
    "heard",
    "here",
    "himself",
    "house",
    "into",
    "itself",
    "know",
    "land",
    "like",
    "made",
    "make",
    "many",
    "more",
    "most",
    "much",
    "name",
    "neither",
    "nothing",
    "now",
    "offered",
    "once",
    "only",
    "other",
    "others",
    "over",
    "people",
    "place",
    "said",
    "same",
    "saying",
    "says",
    "sent",
    "shall",
    "should",
    "since",
    "some",
    "something",
    "speak",
    "spoke",
    "such",
    "take",
    "taken",
    "than",
    "that",
    "their",
    "them",
    "themselves",
    "then",
    "there",
    "therefore",
    "these",
    "they",
    "thing",
    "things",
    "this",
    "those",
    "through",
    "time",
    "took",
    "toward",
    "under",
    "until",
    "upon",
    "very",
    "went",
    "were",
    "what",
    "when",
    "where",
    "which",
    "while",
    "whoever",
    "whole",
    "whom",
    "whose",
    "will",
    "with",
    "within",
    "without",
    "word",
    "words",
    "would",
    "years",
    "your",
    "yours",
    "yourselves",
    "according",
    "called",
    "don",
    "doesn",
    "isn",
    "won",
    "wasn",
    "weren",
    "can",
    "could",
    "may",
    "might",
    "must",
}
QUESTIONS = (
    "Tell me about {}.",
    "What do you know about {}?",
    "Speak of {}.",
    "{}?",
    "What about {}?",
)


def verses(folder: Path, limit: int | None = None) -> list[list[str]]:
    """The verses by chapter, at most `most` chapters."""
    from pysword.modules import SwordModules

    modules = SwordModules(str(folder / "usr/share/sword"))
    name = next(iter(modules.parse_modules()))
    bible = modules.get_bible_from_module(name)
    chapters = []
    for books in bible.get_structure().get_books().values():
        for book in books:
            for number in range(1, book.num_chapters + 1):
                if len(chapters) == limit:
                    return chapters
                found = bible.get_iter(books=[book.name], chapters=[number], clean=False)
                clean = [plain(verse) for verse in found]
                if any(clean):
                    chapters.append([verse for verse in clean if verse])
    return chapters


def plain(verse: str) -> str:
    verse = re.sub(r"<note\b.*?</note>", "", verse, flags=re.DOTALL)
    verse = re.sub(r"<title\b.*?</title>", "", verse, flags=re.DOTALL)
    verse = re.sub(r"<[^>]*>", " ", verse)
    verse = (
        verse.replace("’", "'")
        .replace("‘", "'")
        .replace("“", '"')
        .replace("”", '"')
        .replace("—", "-")
    )
    verse = re.sub(r"\s+", " ", verse).strip()
    return re.sub(r"\s+([,.;:?!])", r"\1", verse)


def documents(chapters: list[list[str]]) -> list[str]:
    return [BEGIN + " ".join(chapter) + END for chapter in chapters]


def conversations(chapters: list[list[str]], choice: random.Random) -> list[str]:
    """ChatML conversations: the user asks about a word, the assistant replies with a verse."""
    made = []
    for chapter in chapters:
        turns = []
        for at, verse in enumerate(chapter):
            words = [
                word for word in re.findall(r"[A-Za-z]{4,}", verse) if word.lower() not in COMMON
            ]
            if not words or len(verse) > 280:
                continue
            question = choice.choice(QUESTIONS).format(choice.choice(words))
            answer = verse
            if len(verse) < 120 and at + 1 < len(chapter) and choice.random() < 0.5:
                answer += " " + chapter[at + 1]
            turns.append((question[0].upper() + question[1:], answer))
        while turns:
            count = choice.choice((1, 1, 2, 3))
            taken, turns = turns[:count], turns[count:]
            lines = [
                f"{TURN}user\n{asked}{TURN_END}\n{TURN}assistant\n{told}{TURN_END}\n"
                for asked, told in taken
            ]
            made.append(BEGIN + "".join(lines) + END)
    return made
