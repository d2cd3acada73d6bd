"""Logs: one line an event, with fields. Readable in a terminal, JSON everywhere else.

Everything goes through one handler on stderr: ours by structlog, libraries' by `logging`.
"""

from __future__ import annotations

import io
import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from elasticd.errors import UsageError

LEVELS = ("debug", "info", "warning", "error")


def set_up_logs(service: str, level: str = "info", stream: TextIO | None = None) -> None:
    """Call once, first thing in a process. `service` names the process in every line.

    Under systemd stderr is a socket, in a file or pipe it is neither: only a terminal gets the
    readable form. Bytes are UTF-8 whatever the locale; a character that has none is escaped.
    """
    if level not in LEVELS:
        raise UsageError(f"log level {level!r}: allowed are {', '.join(LEVELS)}")
    out = stream if stream is not None else sys.stderr
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    shared = _shared_processors(service)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=_last_processors(out.isatty())
        )
    )
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level.upper())
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.captureWarnings(True)


def _shared_processors(service: str) -> list[Processor]:
    def add_service(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
        fields.setdefault("service", service)
        return fields

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_service,
        # Text only: the richer forms print the locals of every frame, and with them secrets.
        structlog.processors.format_exc_info,
    ]


def _last_processors(terminal: bool) -> list[Processor]:
    render: Processor
    if terminal:
        render = structlog.dev.ConsoleRenderer(
            colors=True, exception_formatter=structlog.dev.plain_traceback
        )
    else:
        render = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    return [structlog.stdlib.ProcessorFormatter.remove_processors_meta, render]
