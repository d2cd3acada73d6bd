"""What a starting engine is doing, read from what it prints. A table, first match wins."""

from __future__ import annotations

import re

_PERCENT = re.compile(r"(\d{1,3})%")

_PHASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), phase)
    for pattern, phase in (
        (r"non-default args:", "starting engine"),
        (r"Resolved architecture", "reading configuration"),
        (r"Initializing an? (V\d+ )?LLM engine", "starting engine core"),
        (r"distributed_init_method=", "starting worker"),
        (r"Downloading|Fetching \d+ files", "downloading weights"),
        (r"Starting to load model", "loading weights"),
        (r"Loading (safetensors|pt|bin) checkpoint shards", "loading weights"),
        (r"Loading weights took|Model loading took", "weights loaded"),
        (r"Dynamo bytecode transform|Compiling a graph|torch\.compile takes", "compiling"),
        (r"Memory profiling takes|Available KV cache memory", "measuring memory"),
        (r"KV cache size", "KV cache ready"),
        (r"Capturing CUDA graph|Graph capturing", "capturing graphs"),
        (r"init engine \(profile", "engine ready"),
        (r"Starting vLLM (API )?server", "starting API"),
    )
)


def load_phase(line: str) -> str | None:
    """The phase that this line shows, with its percentage if it tells one; `None`: not told."""
    for pattern, phase in _PHASES:
        if pattern.search(line):
            percent = _PERCENT.search(line)
            return f"{phase} {percent[1]}%" if percent else phase
    return None
