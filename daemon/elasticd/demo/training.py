"""Teaches the tiny model its texts, in about a minute on one core.

Imports torch at the top: import this module only where torch is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from elasticd.demo import llama
from elasticd.demo.lessons import IGNORED, Example, Lessons, Votes

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long, on what, how fast. Each of `steps` takes about a quarter of a second on one core.

    A step learns from `windows` of talk (count and length in tokens: many short ones for speed,
    a long one for distance) and from `short` beginnings of answers in batches of equal length.
    """

    seed: int = 20
    steps: int = 230
    windows: tuple[tuple[int, int], ...] = ((3, 256), (1, 768))
    short: int = 30
    short_batch: int = 6
    short_length: int = 16
    short_weight: float = 1.0
    vote_strength: float = 1.0
    rate: float = 4e-3
    matrix_rate: float = 0.02


def train(
    tokenizer: Tokenizer, shape: llama.Shape, recipe: Recipe, say: Callable[[str], None]
) -> llama.Weights:
    """Trained weights; `say` hears of the progress now and then."""
    votes = Votes(tokenizer)
    lessons = Lessons(tokenizer, votes, recipe.seed)
    weights = llama.new_weights(shape, recipe.seed, torch.tensor(votes.rows) * recipe.vote_strength)
    for tensor in weights.values():
        tensor.requires_grad_()
    optimizers = _optimizers(weights, recipe)
    for step in range(recipe.steps):
        pace = _pace(step, recipe.steps)
        recall = _recall(weights, shape, recipe, lessons)
        choice = _choice(weights, shape, recipe, lessons)
        for optimizer, rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * pace
            optimizer.zero_grad(set_to_none=True)
        (recall + recipe.short_weight * choice).backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
        if step % 25 == 0 or step == recipe.steps - 1:
            say(f"training step {step + 1} of {recipe.steps}: loss {recall:.3f}, {choice:.3f}")
    return {name: tensor.detach() for name, tensor in weights.items()}


def _optimizers(
    weights: llama.Weights, recipe: Recipe
) -> tuple[tuple[torch.optim.Optimizer, float], ...]:
    """Muon for the matrices inside the layers, where it learns twice as fast; AdamW elsewhere."""
    inner = [tensor for name, tensor in weights.items() if "_proj" in name]
    outer = [tensor for name, tensor in weights.items() if "_proj" not in name]
    return (
        (torch.optim.Muon(inner, lr=recipe.matrix_rate, weight_decay=0.0), recipe.matrix_rate),
        (
            torch.optim.AdamW(outer, lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0.0),
            recipe.rate,
        ),
    )


def _pace(step: int, steps: int) -> float:
    """The learning rate as a fraction: warm-up, then straight down."""
    return min(1.0, (step + 1) / 15) * max(0.03, 1.0 - step / steps)


def _recall(weights: llama.Weights, shape: llama.Shape, recipe: Recipe, lessons: Lessons) -> Tensor:
    """The loss on stretches of talk, per token."""
    total = sum(count * length for count, length in recipe.windows)
    loss = torch.zeros(())
    for count, length in recipe.windows:
        drawn = [lessons.window(length) for _ in range(count)]
        inputs = torch.tensor([ids for ids, _ in drawn])
        targets = torch.tensor([wanted for _, wanted in drawn])
        loss = loss + _loss(weights, shape, inputs, targets) * (count * length / total)
    return loss


def _choice(weights: llama.Weights, shape: llama.Shape, recipe: Recipe, lessons: Lessons) -> Tensor:
    """The loss on beginnings of answers, in batches of like lengths to save padding."""
    drawn = [lessons.short(recipe.short_length) for _ in range(recipe.short)]
    drawn.sort(key=lambda example: len(example.prompt) + len(example.answer))
    loss = torch.zeros(())
    for begin in range(0, len(drawn), recipe.short_batch):
        batch = drawn[begin : begin + recipe.short_batch]
        loss = loss + _loss(weights, shape, *_padded(batch)) * (len(batch) / len(drawn))
    return loss


def _padded(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Inputs and targets, padded on the right (harmless: attention looks back only)."""
    longest = max(len(e.prompt) + len(e.answer) for e in examples) - 1
    inputs = torch.zeros(len(examples), longest, dtype=torch.long)
    targets = torch.full((len(examples), longest), IGNORED)
    for row, example in enumerate(examples):
        ids = torch.tensor([*example.prompt, *example.answer])
        inputs[row, : len(ids) - 1] = ids[:-1]
        targets[row, len(example.prompt) - 1 : len(ids) - 1] = ids[len(example.prompt) :]
    return inputs, targets


def _loss(weights: llama.Weights, shape: llama.Shape, inputs: Tensor, targets: Tensor) -> Tensor:
    scores = llama.logits(weights, shape, inputs)
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
