"""Makes the tiny model: a complete Hugging Face directory, on the spot, from a fixed seed.

`python -m elasticd.demo.tiny_model DIR` takes about a minute once, on one core and without a
network; a directory that is finished is used again. What the model is good for is written, and
checked after every training, in `promises`.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from elasticd.demo import llama

MARKER = "elasticd-tiny-model.json"
"""Says that the directory is complete, and of which making it is."""
_NEEDED = ("torch", "tokenizers", "safetensors", "numpy")
_SOURCES = ("texts.py", "tokens.py", "llama.py", "training.py", "lessons.py", "promises.py")
_ATTEMPTS = 3


class CannotMake(Exception):
    """The tiny model cannot be made; the message says why and what to do."""


def make(directory: Path, say: Callable[[str], None] = lambda _: None) -> Path:
    """The finished model in `directory`, made now if it is not there or not of this version.

    Several makers agree: one makes it, the others wait and take it. `say` hears of the progress.
    """
    if finished(directory):
        return directory
    _check_libraries()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _alone(directory):
        if finished(directory):
            return directory
        draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            draft.chmod(0o755)
            _write_model(draft, say)
            _put(draft, directory)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return directory


def finished(directory: Path) -> bool:
    """Whether `directory` holds a complete model of this version."""
    try:
        marker = json.loads((directory / MARKER).read_bytes())
    except FileNotFoundError:
        return False
    return bool(marker.get("version") == version())


@cache
def version() -> str:
    """Changes with every source file that the model is made from."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()[:16]


def _check_libraries() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotMake(
            f"the tiny model needs {', '.join(missing)}, which this Python ({sys.executable}) does "
            "not have; install the engine's requirements (see README) or use its Python"
        )


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Held while a model is made; freed by the kernel if its maker dies."""
    lock = os.open(directory.parent / f".{directory.name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _put(draft: Path, directory: Path) -> None:
    """The draft takes the place of `directory`, which is whole or absent at every moment."""
    if directory.exists():
        if any(directory.iterdir()) and not (directory / MARKER).exists():
            raise CannotMake(f"{directory} holds something else; give an empty or a new directory")
        old = draft.with_name(f"{draft.name}.old")
        directory.rename(old)
        draft.rename(directory)
        shutil.rmtree(old)
    else:
        draft.rename(directory)


def _write_model(draft: Path, say: Callable[[str], None]) -> None:
    """Everything that a Hugging Face directory has; the marker comes last."""
    from safetensors.torch import save_file

    from elasticd.demo import llama, tokens

    began = time.monotonic()
    tokenizer = tokens.train_tokenizer()
    shape = llama.Shape(vocab=tokenizer.get_vocab_size())
    weights, figures = _trained(tokenizer, shape, say)
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()},
        draft / "model.safetensors",
        metadata={"format": "pt"},
    )
    (draft / "model.safetensors").chmod(0o644)
    tokenizer.save(str(draft / "tokenizer.json"))
    end = tokens.id_of(tokenizer, tokens.TURN_END)
    start = tokens.id_of(tokenizer, tokens.END_OF_TEXT)
    (draft / "chat_template.jinja").write_text(tokens.CHAT_TEMPLATE, encoding="utf-8")
    documents = {
        "config.json": llama.hf_config(shape, bos=start, eos=end, pad=start),
        "generation_config.json": llama.hf_generation_config(bos=start, eos=end),
        "tokenizer_config.json": tokens.tokenizer_config(),
        MARKER: {
            "version": version(),
            "seconds": round(time.monotonic() - began, 1),
            "checked": figures,
        },
    }
    for name, document in documents.items():
        text = json.dumps(document, indent=2, ensure_ascii=False)
        (draft / name).write_text(text + "\n", encoding="utf-8")


def _trained(
    tokenizer: Tokenizer, shape: llama.Shape, say: Callable[[str], None]
) -> tuple[llama.Weights, dict[str, int]]:
    """Weights that keep the promises, and the figures of the check.

    Processors round differently, so a training may fail on one that succeeded on another: then
    the next seed has a try.
    """
    from elasticd.demo import llama, promises, tokens, training

    end = tokens.id_of(tokenizer, tokens.TURN_END)
    broken: tuple[str, ...] = ()
    for attempt in range(_ATTEMPTS):
        recipe = training.Recipe(seed=training.Recipe().seed + attempt)
        weights = training.train(tokenizer, shape, recipe, say)
        decode = partial(llama.greedy, weights, shape, limit=900, end=end)
        report = promises.check(decode, tokenizer)
        if not report.broken:
            return weights, {"seed": recipe.seed} | report.figures
        broken += report.broken
        say(f"seed {recipe.seed} breaks promises: {'; '.join(report.broken)}")
    raise CannotMake(
        f"the tiny model broke its promises in {_ATTEMPTS} trainings: {'; '.join(broken)}"
    )


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m elasticd.demo.tiny_model", description=__doc__)
    parser.add_argument("directory", type=Path, help="where the model is to be (made if missing)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads for training")
    directory = (asked := parser.parse_args(arguments)).directory.absolute()
    try:
        if importlib.util.find_spec("torch") is not None:
            import torch

            torch.set_num_threads(asked.threads)
        make(directory, lambda line: print(line, file=sys.stderr, flush=True))
    except CannotMake as error:
        print(f"elasticd: {error}", file=sys.stderr)
        return 1
    print(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
