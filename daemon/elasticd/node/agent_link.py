"""A machine's two calls to the cluster agent: join once, report often. Standard library only."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from elasticd.node.metadata import Notice

TIMEOUT = 10.0
REPORT_EVERY = 5.0
NOTICE_AGAIN = 1.0
"""Seconds until a report that did not arrive is sent again while a notice holds."""
TAIL_LINES = 40
UP = "up"
"""The boot phase of a machine whose Ray runs."""


class AgentAway(Exception):
    """No usable answer: ask again."""


class JoinRefused(Exception):
    """The agent answered, and will answer the same again."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What the agent gave: where Ray is, the secrets, the environment all of the cluster shares.

    `refused`: why this machine must not join; then only the report is open to it.
    """

    ray_address: str
    ray_token: str
    report_token: str
    ray_env: Mapping[str, str]
    refused: str = ""


def nonce(folder: Path) -> str:
    """This machine's own random word, kept in `folder`.

    It makes the single-use join token safe to repeat when the answer was lost: the same machine
    gets the same answer, any other is refused.
    """
    path = folder / "nonce"
    if not path.exists():
        draft = folder / ".nonce"
        draft.write_text(secrets.token_hex(16))
        draft.chmod(0o600)
        draft.replace(path)
    return path.read_text()


def join(
    agent_url: str, node_id: str, token: str, own_nonce: str, versions: Mapping[str, str]
) -> Joined:
    """Exchanges the join token. Raises `AgentAway` or `JoinRefused`."""
    answer = _post(
        f"{agent_url}/v1/nodes/join",
        {"node_id": node_id, "token": token, "nonce": own_nonce, "versions": dict(versions)},
    )
    try:
        return Joined(
            ray_address=str(answer["ray_address"]),
            ray_token=str(answer["ray_token"]),
            report_token=str(answer["report_token"]),
            ray_env={str(k): str(v) for k, v in answer["ray_env"].items()},
            refused=str(answer.get("refused", "")),
        )
    except (KeyError, TypeError, AttributeError) as bad:
        raise AgentAway(
            f"{agent_url}: not a join answer ({bad!r}); is it elasticd's agent?"
        ) from bad


class Reporter:
    """Tells the agent the boot phase and the log tail, from a thread of its own.

    An absent agent costs nothing but the report; the next one has everything again. What was said
    last is kept in `memory`, so that a watcher that was killed and started again still tells how
    its earlier life ended.
    """

    def __init__(
        self, agent_url: str, node_id: str, memory: Path, versions: Mapping[str, str]
    ) -> None:
        self._memory = memory
        self._url = f"{agent_url}/v1/nodes/{node_id}/report"
        self._token = ""
        self._versions = dict(versions)
        self._tail: deque[str] = deque(_earlier_life(memory), maxlen=TAIL_LINES)
        self._boot = ""
        self._notices: tuple[tuple[Notice, ...], bool] = ((), False)
        self._pause = REPORT_EVERY
        self._news = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def open(self, token: str) -> None:
        """Begins to report; what was said before is in the first report. Again: another token."""
        self._token = token
        if not self._thread.is_alive():
            self._thread.start()

    def phase(self, boot: str) -> None:
        """The boot phase; a new one is sent at once."""
        if boot != self._boot:
            self._boot = boot
            self._remember()
            self._news.set()

    def notices(self, notices: tuple[Notice, ...], complete: bool) -> None:
        """All notices that hold for this machine; a change is sent at once.

        `complete`: nothing else holds. Until then what an earlier life told is not taken back.
        """
        if (notices, complete) == self._notices:
            return
        before = {notice.notice_id for notice in self._notices[0]}
        self._notices = (notices, complete)
        for notice in notices:
            if notice.notice_id not in before:
                self.say(f"notice of {notice.kind}: {_when(notice)} ({notice.notice_id})")
        for gone in sorted(before - {notice.notice_id for notice in notices}):
            self.say(f"notice withdrawn: {gone}")
        self._news.set()

    def line(self, text: str) -> None:
        """One more line of the log; sent with the next report."""
        self._tail.append(text[:500])

    def say(self, text: str) -> None:
        """A line of the watcher's own: for the machine's log, and for the report's."""
        print(f"elasticd node: {text}", flush=True)
        self.line(f"elasticd node: {text}")

    @property
    def tail(self) -> Sequence[str]:
        """The log's last lines."""
        return tuple(self._tail)

    def close(self) -> None:
        """Sends the last phase, if the agent answers soon."""
        self._ending = True
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        while True:
            self._news.wait(self._pause)
            self._news.clear()
            ending = self._ending
            self._remember()
            try:
                _post(self._url, self._report(), self._token)
                self._pause = REPORT_EVERY
            except (AgentAway, JoinRefused) as problem:
                self._pause = NOTICE_AGAIN if self._notices[0] else REPORT_EVERY
                self._tell_once(str(problem))
            if ending:
                return

    def _report(self) -> dict[str, Any]:
        held, complete = self._notices
        return {
            "boot": self._boot,
            "log_tail": list(self._tail),
            "versions": self._versions,
            "notices": [
                {"notice_id": n.notice_id, "kind": n.kind, "seconds_left": n.seconds_left}
                for n in held
            ],
            "notices_complete": complete,
        }

    def _remember(self) -> None:
        """A full disk must not keep the report from the agent."""
        draft = self._memory.with_name(f".{self._memory.name}")
        with contextlib.suppress(OSError):
            draft.write_text("\n".join((self._boot, *list(self._tail))))
            draft.replace(self._memory)

    _told = ""

    def _tell_once(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            print(f"elasticd node: report not taken: {problem}", flush=True)


def _when(notice: Notice) -> str:
    left = notice.seconds_left
    return "no end is set" if left is None else f"{left:.0f} s left"


def _earlier_life(memory: Path) -> list[str]:
    """The lines of the watcher's earlier life on this machine, and that it ended."""
    try:
        boot, *lines = memory.read_text(errors="replace").splitlines()
    except (OSError, ValueError):
        return []
    return [*lines, f"[the watcher was started again; before, it said: {boot}]"]


def _post(url: str, body: Mapping[str, Any], token: str = "") -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 (the URL is the operator's own)
        url,
        data=json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
            data = json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as refused:
        with refused:
            message = refused.read(500).decode(errors="replace")
        if 400 <= refused.code < 500 and refused.code not in (408, 429):
            raise JoinRefused(f"{url}: {refused.code} {message}") from refused
        raise AgentAway(f"{url}: {refused.code} {message}") from refused
    except (OSError, HTTPException, ValueError) as away:
        raise AgentAway(f"{url}: {away}") from away
    if not isinstance(data, dict):
        raise AgentAway(f"{url}: not a JSON object; is it elasticd's agent?")
    return data
