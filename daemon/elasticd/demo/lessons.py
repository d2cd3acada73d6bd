"""What the tiny model is taught with: endless talk of prompts and answers, drawn from a seed.

How a prompt finds its answer: *every* token of it votes, with fixed random weights, for an opener
and a text; "think" and "tool" in it turn the vote to the answers of that form. So an unknown
prompt too leads into one of the texts, and which one varies with the prompt; digits weigh most,
because generated load differs in numbers. The prompts of `texts` lead to their own answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from elasticd.demo import texts, tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

IGNORED = -100
"""A target that carries no loss: prompts, and what could not be known."""
_UNKNOWABLE = 8
"""At the start of a window that begins amid a text, nobody can tell which one it is."""
_BARE = 0.2
"""So many of all prompts stand without a chat around them, as for the completions endpoint."""
_WITH_SYSTEM = 0.15
_SPECIALS = (*texts.THINKING, *texts.TOOLS)
_SPECIAL = 0.25
"""So many of the short examples ask for reasoning or a tool."""
_BEGUN = 0.08
"""So many of them are bare prompts that begin one of the texts."""
_BARE_FACTOR = 4
_DIGIT_STRENGTH = 5.0
_KEYWORD_STRENGTH = 8.0
_CHOICES = {
    "text": len(texts.PLAIN),
    "opener": len(texts.OPENERS),
    texts.THINK_WORD: len(texts.THINKING),
    texts.TOOL_WORD: len(texts.TOOLS),
}
Draw = Callable[[], tuple[str, str]]
"""Draws a user's prompt and the answer to it."""


@dataclass(frozen=True, slots=True)
class Example:
    """One lesson: the answer's ids are learned, the prompt's are given."""

    prompt: list[int]
    answer: list[int]


class Votes:
    """For what each token votes; the same in every training."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._rows = []
        for token in range(tokenizer.get_vocab_size()):
            word = (tokenizer.id_to_token(token) or "").removeprefix("\u0120").lower()
            drawn = random.Random(token)
            strength = _DIGIT_STRENGTH if any(sign.isdigit() for sign in word) else 1.0
            row = [drawn.gauss(0.0, strength) for _ in range(sum(_CHOICES.values()))]
            keywords = (texts.THINK_WORD, texts.TOOL_WORD, tokens.END_OF_TEXT)
            self._rows.append(row + [_KEYWORD_STRENGTH * (word == key) for key in keywords])

    @property
    def rows(self) -> list[list[float]]:
        """Per token: its weight for every choice of every question, and which keyword it is."""
        return self._rows

    def elected(self, question: str, ids: Sequence[int]) -> int:
        """What the tokens choose together."""
        begin = 0
        for name, choices in _CHOICES.items():
            if name == question:
                totals = [sum(self._rows[i][begin + n] for i in ids) for n in range(choices)]
                return max(range(choices), key=totals.__getitem__)
            begin += choices
        raise KeyError(question)


class Lessons:
    """Draws examples, the same ones for the same seed."""

    def __init__(self, tokenizer: Tokenizer, votes: Votes, seed: int) -> None:
        self._tokenizer = tokenizer
        self._votes = votes
        self._random = random.Random(seed)
        self._end = tokens.id_of(tokenizer, tokens.TURN_END)
        self._start = tokens.id_of(tokenizer, tokens.END_OF_TEXT)
        self._newline = tokens.ids_of(tokenizer, "\n")
        self._words = sorted(
            {word for text in tokens.corpus() for word in text.split() if "<" not in word}
        )
        self._deck: list[Draw] = []
        self._talk: list[tuple[int, int]] = []

    def window(self, length: int) -> tuple[list[int], list[int]]:
        """A stretch of the endless talk: ids, and what is to be learned after each of them."""
        while len(self._talk) < 2 * length + 1:
            example = self._whole()
            self._talk += [(token, IGNORED) for token in example.prompt]
            self._talk += [(token, token) for token in example.answer]
            self._talk += [(token, IGNORED) for token in self._newline]
        skip = self._random.randrange(length)
        stretch = self._talk[skip : skip + length + 1]
        del self._talk[: skip + length]
        targets = [target for _, target in stretch[1:]]
        return [token for token, _ in stretch[:-1]], [IGNORED] * _UNKNOWABLE + targets[_UNKNOWABLE:]

    def short(self, length: int) -> Example:
        """Any prompt and the first `length` ids of its answer: teaches the votes cheaply.

        A bare prompt gets more of its answer: no frame says there that an answer has begun.
        """
        kind = self._random.random()
        if kind < _BEGUN:
            return self._begun(_BARE_FACTOR * length)
        if kind < _BEGUN + _SPECIAL:
            whole = self._example(*self._special(self._random.choice(_SPECIALS)))
        else:
            whole = self._example(*self._plain(None))
        bare = whole.prompt[0] == self._start
        return Example(whole.prompt, whole.answer[: length * (_BARE_FACTOR if bare else 1)])

    def _begun(self, length: int) -> Example:
        """A bare prompt that is the beginning of a text: the text goes on."""
        text = self._random.choice(texts.PLAIN)
        answer = tokens.ids_of(self._tokenizer, self._random.choice(text.answers()))
        cut = self._random.randrange(2, 80)
        return Example([self._start, *answer[:cut]], answer[cut : cut + length])

    def _whole(self) -> Example:
        """A prompt and its complete answer; each text comes up equally often."""
        if not self._deck:
            self._deck = [partial(self._plain, number) for number in range(len(texts.PLAIN))]
            self._deck += [partial(self._special, text) for text in _SPECIALS]
            self._random.shuffle(self._deck)
        return self._example(*self._deck.pop()())

    def _example(self, user: str, answer: str) -> Example:
        return Example(self._framed(user), [*tokens.ids_of(self._tokenizer, answer), self._end])

    def _framed(self, user: str) -> list[int]:
        kind = self._random.random()
        if kind < _BARE:
            return tokens.bare_ids_of(self._tokenizer, user)
        system = self._chatter() if kind < _BARE + _WITH_SYSTEM else None
        return tokens.ids_of(self._tokenizer, tokens.chat_prompt(user, system))

    def _plain(self, number: int | None) -> tuple[str, str]:
        """With `number`, prompts are drawn until one leads to that text."""
        while True:
            if self._random.random() < 0.2:
                text = self._random.choice(texts.PLAIN) if number is None else texts.PLAIN[number]
                user = text.prompt
            else:
                user = self._chatter()
                if any(word in user.lower() for word in (texts.THINK_WORD, texts.TOOL_WORD)):
                    continue
                text = texts.PLAIN[self._elected("text", user)]
            if number is None or text is texts.PLAIN[number]:
                return user, text.answers()[self._elected("opener", user)]

    def _special(self, text: texts.Special) -> tuple[str, str]:
        """A prompt that asks for a form of answer and leads to `text`."""
        same = texts.THINKING if text in texts.THINKING else texts.TOOLS
        word = texts.THINK_WORD if same is texts.THINKING else texts.TOOL_WORD
        while True:
            if self._random.random() < 0.25:
                return text.prompt, text.answer
            user = self._with_word(word)
            if same[self._elected(word, user)] is text:
                return user, text.answer

    def _elected(self, question: str, user: str) -> int:
        return self._votes.elected(question, tokens.ids_of(self._tokenizer, user))

    def _with_word(self, word: str) -> str:
        words = self._chatter().split(" ")
        form = self._random.choice((word, word.capitalize(), f"{word}:", f"{word}."))
        words.insert(self._random.randrange(len(words) + 1), form)
        return " ".join(words)

    def _chatter(self) -> str:
        """A prompt out of nothing: words, numbers, letters, signs."""
        parts = []
        for _ in range(self._random.choice((1, 2, 3, 5, 8))):
            kind = self._random.random()
            if kind < 0.6:
                parts.append(self._random.choice(self._words)[:10])
            elif kind < 0.8:
                parts.append(str(self._random.randrange(10 ** self._random.randrange(1, 4))))
            else:
                size = self._random.randrange(1, 7)
                parts.append("".join(self._random.choices("abcdefghijklmnopqrstuvwxyz", k=size)))
        longest = self._random.choice((16, 32, 32, 64))
        return " ".join(parts)[:longest] + self._random.choice(("", "", ".", "?", "!"))
