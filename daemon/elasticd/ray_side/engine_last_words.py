"""What an engine said of its end: the one line among its last ones that tells why. Pure.

An engine ends with a traceback, or several of several processes, and then with remarks that tell
nothing. Of a traceback its exception counts; of a chain over processes the first that explains
itself, not those that point to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LONGEST = 200
"""Characters of a cause; the lines it was taken from are shown beside it."""

NOTHING = "it printed nothing"

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PROCESS = re.compile(r"^\(([\w.-]+(?: [\w.=-]+)*)\) ?")
_LOGGED = re.compile(
    r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\b:?"
    r"(?: \d\d-\d\d \d\d:\d\d:\d\d)?(?: \[[\w./-]+:\d+\])? ?"
)
_GROUP = re.compile(r"^ +\| ?")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<kind>[A-Za-z_]\w*)(?:: (?P<text>.*)|:?)$")
_POINTS_ELSEWHERE = re.compile(
    r"root cause|See (?:the )?(?:stack trace|error|logs?) above|KeyboardInterrupt|SystemExit"
    r"|CancelledError|EngineDeadError",
    re.IGNORECASE,
)
_USAGE = re.compile(r"^[\w./-]+: error: (?P<text>.+)$")
_IDLE = re.compile(
    r"^(?:For further information visit|During handling of the above|The above exception"
    r"|warnings\.warn\(|.*\bresource_tracker\b|\S+\.py:\d+: \w*Warning|[\W_]*$)"
)
_INSTALLED = re.compile(r"(?:/[\w.@+-]+)+/(?:site|dist)-packages/")
_FOLDERS = re.compile(r"(?<![\w/.:])/(?:[\w.@+-]+/)+(?=[\w.@+-]+\.(?:py|so)\b)")
_OF_PYDANTIC = re.compile(r"(?:Value error|Assertion failed), |\s*\[type=\w+, .*\]$")
_REMARKS_AFTER = 20
"""Lines after a traceback: with more, the engine went on, and its end has another cause."""


def telling_line(tail: Sequence[str]) -> str:
    """In one sentence, without places on the disk where the engine is installed."""
    lines = [_COLOURS.sub("", line).rstrip() for line in tail]
    found = _of_tracebacks(lines) or _of_usage(lines) or _of_log(lines) or NOTHING
    for noise in (_OF_PYDANTIC, _INSTALLED, _FOLDERS):
        found = noise.sub("", found)
    return shortened(" ".join(found.split()))


def shortened(text: str) -> str:
    """At most `LONGEST` characters, whole sentences where there is an end of one."""
    if len(text) <= LONGEST:
        return text
    end = text.rfind(". ", LONGEST // 5, LONGEST)
    if end > 0:
        return text[: end + 1]
    return text[: LONGEST - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


def _of_tracebacks(lines: Sequence[str]) -> str:
    """The last exception that explains itself; else the last one at all."""
    found: list[tuple[int, str]] = []
    for stream in _streams(lines):
        found += _exceptions(stream)
    found.sort(key=lambda one: one[0])
    if not found or _said_after(lines, found[-1][0]) > _REMARKS_AFTER:
        return ""
    explaining = [text for _, text in found if not _POINTS_ELSEWHERE.search(text)]
    return explaining[-1] if explaining else found[-1][1]


def _streams(lines: Sequence[str]) -> list[list[tuple[int, str]]]:
    """The lines of each process by themselves, without what its log puts before them."""
    streams: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(lines):
        process = _PROCESS.match(line)
        name = process[1] if process else ""
        streams.setdefault(name, []).append((number, _bare(line)))
    return list(streams.values())


def _bare(line: str) -> str:
    return _GROUP.sub("", _LOGGED.sub("", _PROCESS.sub("", line)))


def _exceptions(stream: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Each exception after a traceback, with the number of its last line."""
    inside = False
    for position, (number, line) in enumerate(stream):
        if line.endswith(_TRACEBACK):
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
            if found := _EXCEPTION.match(line):
                after = [text for _, text in stream[position + 1 : position + 4]]
                yield number, _explained(found["kind"], found["text"] or "", after)


def _explained(kind: str, text: str, after: Sequence[str]) -> str:
    """An exception in a sentence; some say in the lines below what is wrong."""
    if kind == "ValidationError" and "validation error" in text:
        return _first_of_pydantic(after) or f"{kind}: {text}"
    if text.endswith(":") or not text:
        following = next((line.strip() for line in after if line.startswith(" ")), "")
        text = f"{text} {following}".strip()
    return f"{kind}: {text}" if text else kind


def _first_of_pydantic(after: Sequence[str]) -> str:
    """The first of its errors: where it is, if that is told, and what."""
    where = ""
    for line in after:
        if line and not line[0].isspace():
            where = f"{line}: "
        elif line.strip() and not _IDLE.match(line.strip()):
            return where + line.strip()
    return ""


def _said_after(lines: Sequence[str], number: int) -> int:
    return sum(1 for line in lines[number + 1 :] if line.strip())


def _of_usage(lines: Sequence[str]) -> str:
    """What a command line parser says last."""
    last = next((line for line in reversed(lines) if line.strip()), "")
    usage = _USAGE.match(last)
    return usage["text"] if usage else ""


def _of_log(lines: Sequence[str]) -> str:
    """The last line that was logged as an error, if little follows it; else the last that says
    anything."""
    said = [line for line in lines if _says_something(line)]
    for line in reversed(said[-_REMARKS_AFTER:]):
        level = _LOGGED.match(_PROCESS.sub("", line))
        if level and level["level"] in ("ERROR", "CRITICAL", "FATAL"):
            return _bare(line)
    return _bare(said[-1]) if said else ""


def _says_something(line: str) -> bool:
    words = _bare(line).strip()
    return bool(words) and not _IDLE.match(words)
