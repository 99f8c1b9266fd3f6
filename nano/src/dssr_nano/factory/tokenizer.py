"""The tokenizer of nano: byte-level BPE whose merges may join whole words up to the end of a sentence or clause.

Two stages. Merges inside words come first, so a name is always cut into the same pieces wherever it stands.
Then whole words that often follow each other are joined, and the game's stock sentences become one token each.
The letter that opens an option line is always a token of its own, the same one that answers; so is what parts the
items of a list, article included.
"""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from dssr.types import LABELS

SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|pad|>")
CHAT_TEMPLATE = (
    "{%- for message in messages -%}{{- '<|' + message['role'] + '|>' + message['content'] -}}"
    "{%- if not (loop.last and message['role'] == 'assistant' and continue_final_message|default(false)) -%}"
    "{{- '<|end|>' -}}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
LABEL = r"(?:(?<=\n)|\A)[A-Za-z](?=\. )"
ITEM = r", an?(?: raw)?(?= )"
CLAUSE = rf"[^\n]+?(?:[.!?:\]-]+\n+(?=\S)|[.!?:](?= |\z)|(?={ITEM})|,(?= )|(?=\n)|\z)"
PIECES = Regex(f"{LABEL}|\\n|{ITEM}|{CLAUSE}")
WORDS = Regex(r"\n| ?[A-Za-z'\-]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+")


def _word_stage(texts: list[str], size: int) -> Tokenizer:
    """Merges that stay inside words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PIECES, "isolated"),
            pre_tokenizers.Split(WORDS, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _clauses(texts: list[str], words: Tokenizer, apart: frozenset[str]) -> Counter[tuple[str | None, ...]]:
    """Clauses as sequences of one-token words; None stands for what nothing may join: words in pieces, and `apart`."""
    split = pre_tokenizers.Split(PIECES, "isolated")
    inner = pre_tokenizers.Split(WORDS, "isolated")
    whole: dict[str, str | None] = {}
    found: Counter[str] = Counter(piece for text in texts for piece, _ in split.pre_tokenize_str(text))
    clauses: Counter[tuple[str | None, ...]] = Counter()
    for piece, count in found.items():
        if piece in LABELS or piece == "\n":
            continue
        row: list[str | None] = []
        for word, _ in inner.pre_tokenize_str(piece):
            if word not in whole:
                tokens = words.encode(word).tokens
                whole[word] = tokens[0] if len(tokens) == 1 and word.strip() not in apart else None
            row.append(whole[word])
        clauses[tuple(row)] += count
    return clauses


def _phrase_merges(
    clauses: Counter[tuple[str | None, ...]], vocab: dict[str, int], size: int, least: int
) -> list[tuple[str, str]]:
    """Joins of neighbouring words, most frequent first; extends `vocab` up to `size`."""
    rows = [(list(row), count) for row, count in sorted(clauses.items(), key=lambda item: str(item))]
    pairs: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], set[int]] = {}

    def count_row(index: int, sign: int) -> None:
        row, count = rows[index]
        for left, right in pairwise(row):
            if left is not None and right is not None:
                pairs[left, right] += sign * count
                if sign > 0:
                    where.setdefault((left, right), set()).add(index)

    for index in range(len(rows)):
        count_row(index, 1)
    merges: list[tuple[str, str]] = []
    while len(vocab) < size and pairs:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < least:
            break
        joined = best[0] + best[1]
        merges.append(best)
        vocab.setdefault(joined, len(vocab))
        for index in sorted(where.pop(best)):
            count_row(index, -1)
            rows[index] = (_join(rows[index][0], best, joined), rows[index][1])
            count_row(index, 1)
        del pairs[best]
    return merges


def _join(row: list[str | None], pair: tuple[str, str], joined: str) -> list[str | None]:
    out: list[str | None] = []
    position = 0
    while position < len(row):
        if position + 1 < len(row) and (row[position], row[position + 1]) == pair:
            out.append(joined)
            position += 2
        else:
            out.append(row[position])
            position += 1
    return out


def train(
    texts: Iterable[str], apart: Iterable[str] = (), word_size: int = 2600, size: int = 4608, least: int = 12
) -> Tokenizer:
    """The tokenizer for `texts`. The words of names, `apart`, are never joined with others: they must stay copyable."""
    texts = list(texts)
    words = _word_stage(texts, word_size)
    inner = json.loads(words.to_str())["model"]
    vocab: dict[str, int] = dict(inner["vocab"])
    merges = [tuple(merge) for merge in inner["merges"]]
    merges += _phrase_merges(_clauses(texts, words, frozenset(apart)), vocab, size - len(SPECIAL), least)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(PIECES, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def cut(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text inside a longer one: a line break belongs to what is before it if something follows."""
    if not text.endswith("\n"):
        return list(tokenizer.encode(text, add_special_tokens=False).ids)
    return list(tokenizer.encode(f"{text}-", add_special_tokens=False).ids)[:-1]


FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""What `save` writes."""


def save(tokenizer: Tokenizer, folder: Path, context_length: int) -> None:
    """Files from which `AutoTokenizer` loads it, chat template included."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        "eos_token": "<|end|>",
        "pad_token": "<|pad|>",
        "clean_up_tokenization_spaces": False,
        "additional_special_tokens": ["<|system|>", "<|user|>", "<|assistant|>"],
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
