"""Of all that an engine prints at its end, the line that tells why is found.

The files in `last_words` are what vLLM printed when it was started with options that cannot be.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.ray_side.engine import TAIL_LINES
from elasticd.ray_side.engine_last_words import LONGEST, telling_line

PRINTED = Path(__file__).with_name("last_words")
HEADER = "Traceback (most recent call last):"
FRAME = '  File "/opt/e/lib/python3.11/site-packages/e/run.py", line 3, in main'


def printed(name: str) -> list[str]:
    return (PRINTED / f"{name}.txt").read_text(encoding="utf-8").split("\n")[-TAIL_LINES:]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        (
            "context_too_long",
            "User-specified max_model_len (9999999) is greater than the derived max_model_len "
            "(max_position_embeddings=4096.0 or model_max_length=None in model's config.json).",
        ),
        ("value_out_of_range", "gpu_memory_utilization: Input should be less than or equal to 1"),
        (
            "wrong_choice",
            "argument --dtype: invalid choice: 'nonsense' (choose from 'auto', 'bfloat16', "
            "'float', 'float16', 'float32', 'half')",
        ),
        ("no_room_for_cache", "ValueError: No available memory for the cache blocks."),
    ],
)
def test_what_vllm_could_not_start_with_is_told(name: str, cause: str) -> None:
    assert telling_line(printed(name)) == cause


def test_of_several_processes_the_one_that_explains_itself_counts() -> None:
    """The last traceback only says that there is another one above."""
    assert "See root cause above" in "".join(printed("no_room_for_cache")[-10:])
    alone = [
        HEADER,
        FRAME,
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    assert telling_line(alone).startswith("RuntimeError: Engine core initialization failed")


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([HEADER, FRAME, "ValueError: no such dtype", ""], "ValueError: no such dtype"),
        ([HEADER, FRAME, "torch.OutOfMemoryError: CUDA out of memory."], "OutOfMemoryError: CUDA"),
        ([HEADER, FRAME, "KeyError: 'rope_type'", "  warnings.warn('x')"], "KeyError: 'rope_type'"),
        ([HEADER, FRAME, "AssertionError"], "AssertionError"),
        ([HEADER, FRAME, "RuntimeError:", "  cannot fork"], "RuntimeError: cannot fork"),
        (
            [
                f"(EngineCore pid=1) ERROR 01-01 10:00:00 [core.py:1] {HEADER}",
                "(APIServer pid=2) INFO 01-01 10:00:00 [api.py:1] waiting",
                f"(EngineCore pid=1) ERROR 01-01 10:00:00 [core.py:1] {FRAME}",
                "(EngineCore pid=1) ERROR 01-01 10:00:00 [core.py:1] OSError: no weights",
            ],
            "OSError: no weights",
        ),
        (
            [
                f"  + Exception Group {HEADER}",
                "  | ExceptionGroup: errors (1 sub-exception)",
                "  +-+---------------- 1 ----------------",
                f"    | {HEADER}",
                f"    | {FRAME}",
                "    | ValueError: deep inside",
            ],
            "ValueError: deep inside",
        ),
    ],
)
def test_of_a_traceback_its_exception_is_told(lines: list[str], cause: str) -> None:
    assert telling_line(lines).startswith(cause)


def test_a_traceback_of_which_only_the_end_was_kept_still_tells() -> None:
    end = [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "  Value error, no such file [type=value_error, input_value=ArgsKwargs(()), input_type=A]",
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error",
    ]
    assert telling_line(end) == "no such file"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["loading", "cannot find the model", "", "   "], "cannot find the model"),
        (["ERROR: port 8000 is taken", "bye"], "port 8000 is taken"),
        (
            [
                "(APIServer pid=7) ERROR 01-01 10:00:00 [launcher.py:9] no GPU",
                "(APIServer pid=7) INFO 01-01 10:00:00 [launcher.py:9]",
            ],
            "no GPU",
        ),
        (["no GPU", "(APIServer pid=7) INFO 01-01 10:00:00 [launcher.py:9] "], "no GPU"),
        (["\x1b[31mred alarm\x1b[0m"], "red alarm"),
        (
            ["gone", "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: x"],
            "gone",
        ),
        ([], "it printed nothing"),
        (["", "INFO 01-01 10:00:00 [launcher.py:9] "], "it printed nothing"),
    ],
)
def test_without_a_traceback_the_last_line_that_says_something_is_told(
    lines: list[str], cause: str
) -> None:
    assert telling_line(lines) == cause


def test_a_traceback_after_which_the_engine_went_on_is_not_the_cause() -> None:
    lines = [HEADER, FRAME, "ValueError: one request was wrong"]
    lines += [f"request {number} served" for number in range(50)]
    assert telling_line([*lines, "license expired"]) == "license expired"


def test_places_on_the_disk_where_the_engine_is_installed_are_left_out() -> None:
    lines = [HEADER, FRAME]
    lines.append(
        "ImportError: cannot import name 'x' from 'vllm' "
        "(/opt/e/lib/python3.11/site-packages/vllm/__init__.py)"
    )
    assert (
        telling_line(lines) == "ImportError: cannot import name 'x' from 'vllm' (vllm/__init__.py)"
    )
    kept = [HEADER, FRAME, "OSError: /srv/models/m is no directory; see https://e.example/a/b.py"]
    assert telling_line(kept) == kept[-1]


@pytest.mark.parametrize(
    "text", ["word " * 200, "x" * 900, "One sentence that is long enough. " + "y " * 200]
)
def test_a_cause_is_of_bearable_length(text: str) -> None:
    told = telling_line([text])
    assert len(told) <= LONGEST
    assert told.endswith(("…", "."))
