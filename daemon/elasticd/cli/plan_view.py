"""The plan for people, and as JSON."""

from __future__ import annotations

from typing import Any

from elasticd.cli.plan_choices import Choice, Plan
from elasticd.cli.plan_subject import Subject
from elasticd.core.fit import (
    Fit,
    gib,
    kv_bytes_per_token,
    tensor_parallel_sizes,
    weight_bytes_per_gpu,
)
from elasticd.core.memory_settings import AUTO_LENGTH
from elasticd.ops.text_table import Column, Paint, Row, Style, bullet, clean, painted, table, wrap

_MOST_GPUS = 16
_FITTING = (
    Column("GIB", right=True),
    Column("TAKES", right=True),
    Column("TOKENS", right=True),
    Column("REQUESTS", right=True),
)
_OFFERED = (
    Column(""),
    Column("OFFERING", least=12),
    Column("GPUS"),
    *_FITTING,
    Column("MACHINE/H", right=True),
    Column("REPLICA/H", right=True),
)
_KNOWN = (Column("GPU"), *_FITTING)


def render(subject: Subject, plan: Plan, width: int, paint: Paint) -> list[str]:
    """Lines of text: the model, a table of choices, and a verdict."""
    offered = any(choice.offering is not None for choice in plan.choices)
    rows = [_row(choice, choice in plan.cheapest) for choice in plan.choices]
    lines = [
        f"{paint(clean(subject.name), Style.BOLD)}  {clean(subject.source)}",
        *(f"  {line}" for text in _about(subject) for line in wrap(text, width - 2)),
        "",
        *table(_OFFERED if offered else _KNOWN, rows, width, paint),
    ]
    for note in plan.notes:
        lines += bullet("  ·", clean(note), width)
    return [*lines, "", *_verdict(plan, width, paint)]


def _about(subject: Subject) -> list[str]:
    shape, settings = subject.shape, subject.settings
    origin = "computed" if shape.weight_bytes is None else "measured"
    sizes = ", ".join(str(size) for size in tensor_parallel_sizes(shape, _MOST_GPUS))
    per_token = kv_bytes_per_token(shape, settings, 1)
    overhead = gib(settings.overhead_mib * 2**20)
    taken = f"{settings.utilization:.0%} of each, {overhead} of it to work with"
    if settings.kv_cache_bytes is not None:
        taken = f"{gib(settings.kv_cache_bytes)} of each for its cache and {overhead} to work with"
    return [
        f"weights {gib(weight_bytes_per_gpu(shape, settings, 1))} ({origin}), "
        f"cache {per_token / 1024:.1f} KiB per token, longest request {_length(subject)}",
        f"divides among {sizes} GPUs; the engine takes {taken}",
    ]


def _length(subject: Subject) -> str:
    asked, own = subject.settings.max_model_len, subject.shape.max_positions
    if asked == AUTO_LENGTH:
        return "as long as fits"
    if asked is not None:
        return f"{asked} tokens"
    return f"{own} tokens (the model's own)" if own is not None else "2048 tokens (not told)"


def _row(choice: Choice, cheapest: bool) -> Row:
    offering, best = choice.offering, choice.best
    fitting = (
        "?" if choice.memory_mib is None else f"{choice.memory_mib / 1024:.1f}",
        _takes(choice),
        str(best.tokens) if best is not None else "?",
        f"{best.sequences:.1f}" if best is not None else "?",
    )
    if offering is None:
        return Row(
            (clean(choice.gpu_kind), *fitting), ((2, _style(choice)),), clean(choice.problem)
        )
    status = "cheapest" if cheapest else "" if offering.available else "sold out"
    return Row(
        cells=(
            "*" if cheapest else "",
            clean(offering.id),
            clean(f"{choice.gpu_count} x {choice.gpu_kind}"),
            *fitting,
            _price(offering.price_micros, offering.currency),
            _price(choice.replica_price_micros, offering.currency),
        ),
        styles=((4, _style(choice)),),
        note=clean(choice.problem or status),
    )


def _takes(choice: Choice) -> str:
    """On how many GPUs a replica starts, every number that will do."""
    copies = (choice.gpus or 1) // (choice.best.tensor_parallel if choice.best else 1)
    return "/".join(str(result.tensor_parallel * copies) for result in choice.fits) or "-"


def _style(choice: Choice) -> Style:
    if choice.memory_mib is None:
        return Style.QUIET
    return Style.GOOD if choice.holds else Style.BAD


def _price(micros: int | None, currency: str) -> str:
    return "" if micros is None else f"{micros / 1e6:.2f} {currency}"


def _verdict(plan: Plan, width: int, paint: Paint) -> list[str]:
    if plan.holds:
        return [
            paint(
                f"{sum(c.holds for c in plan.choices)} of {len(plan.choices)} hold it.", Style.GOOD
            )
        ]
    if all(choice.memory_mib is None for choice in plan.choices):
        told = (
            "Whether anything holds it cannot be said: the memory of these GPUs is not known. "
            "Name a known kind, or let the provider tell."
        )
        return painted(wrap(told, width), Style.BUSY, paint)
    lines = [paint("Nothing here holds it.", Style.BAD)]
    if plan.advice:
        lines.append("What would:")
    for sentence in plan.advice:
        lines += bullet("  ·", sentence, width)
    return lines


def as_json(subject: Subject, plan: Plan) -> dict[str, Any]:
    """The same for programs: sizes in bytes, prices in millionths."""
    shape, settings = subject.shape, subject.settings
    return {
        "model": subject.name,
        "source": subject.source,
        "holds": plan.holds,
        "weight_bytes": weight_bytes_per_gpu(shape, settings, 1),
        "weights_measured": shape.weight_bytes is not None,
        "parameters": shape.parameters.total,
        "kv_bytes_per_token": kv_bytes_per_token(shape, settings, 1),
        "tensor_parallel_sizes": list(tensor_parallel_sizes(shape, _MOST_GPUS)),
        "gpus_per_replica": subject.gpus or "auto",
        "choices": [_choice_json(choice, choice in plan.cheapest) for choice in plan.choices],
        "notes": list(plan.notes),
        "would_fit": list(plan.advice),
    }


def _choice_json(choice: Choice, cheapest: bool) -> dict[str, Any]:
    offering = choice.offering
    return {
        "offering": offering.id if offering else None,
        "pool": offering.pool if offering else None,
        "available": offering.available if offering else None,
        "gpu_kind": choice.gpu_kind,
        "gpu_count": choice.gpu_count,
        "gpu_memory_mib": choice.memory_mib,
        "holds": choice.holds if choice.memory_mib is not None else None,
        "gpus_per_replica": choice.gpus if choice.holds else None,
        "tensor_parallel": [_fit_json(result) for result in choice.fits],
        "problem": choice.problem,
        "price_micros": offering.price_micros if offering else None,
        "replica_price_micros": choice.replica_price_micros,
        "currency": offering.currency if offering else None,
        "cheapest": cheapest,
    }


def _fit_json(result: Fit) -> dict[str, Any]:
    return {
        "size": result.tensor_parallel,
        "weight_bytes_per_gpu": result.weight_bytes,
        "kv_bytes_per_token_per_gpu": result.kv_bytes_per_token,
        "tokens": result.tokens,
        "max_model_len": result.length,
        "requests": round(result.sequences, 2),
    }
