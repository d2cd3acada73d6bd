"""The threads that listen: when they tell, how often they ask, what they say to people."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from elasticd.node import notice_watch
from elasticd.node.metadata import Heard, Notice, SwitchedOff, Unknown, ec2, listeners
from elasticd.node.notice_watch import NoticeWatch, pause_after, watch_for
from tests.node.fake_metadata import ACTION, FAULTS, FakeEc2, FakeGcp, running
from tests.node.waiting import eventually

GOES = '{"action": "terminate", "time": "2026-10-01T08:31:30Z"}'
NOTICE = Notice("x", "interruption", None)


class Scripted:
    """Hears what the script says; then nothing more, until the test is over."""

    def __init__(self, name: str, *script: Heard | Exception) -> None:
        self.name = name
        self._script = list(script)
        self.over = threading.Event()

    def listen(self) -> Heard:
        if not self._script:
            self.over.set()
            threading.Event().wait(30)
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


def heard(*notices: Notice, complete: bool = True, trouble: str = "") -> Heard:
    return Heard(notices, complete, 0.0, trouble)


class Run:
    """One watch, run until its listeners' scripts are over."""

    def __init__(self, *scripts: Scripted) -> None:
        self.told: list[tuple[tuple[Notice, ...], bool]] = []
        self.said: list[str] = []
        self.rests: list[float] = []
        watch = NoticeWatch(scripts, lambda *t: self.told.append(t), self.said.append, self._rest)
        watch.start()
        for script in scripts:
            assert script.over.wait(20)
        watch.stop()

    def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)


def test_it_is_complete_only_when_everybody_has_answered() -> None:
    silent = Scripted("b", Unknown("silent"))
    run = Run(Scripted("a", heard(NOTICE)), silent)
    assert run.told == [((NOTICE,), False)]


def test_silence_takes_nothing_back() -> None:
    run = Run(Scripted("a", heard(NOTICE), Unknown("silent"), Unknown("silent")))
    assert run.told == [((NOTICE,), True)]


def test_pauses_grow_and_stay_short_beside_a_notice() -> None:
    run = Run(Scripted("a", *(Unknown("silent") for _ in range(12))))
    assert run.rests[0] >= 0.75 * notice_watch.FIRST_PAUSE
    assert run.rests[-1] > run.rests[0]
    assert max(run.rests) <= notice_watch.LONGEST_PAUSE
    assert len({pause_after(5) for _ in range(20)}) > 1, "a fleet does not ask in step"


def test_people_are_told_once_that_nothing_is_heard_and_once_that_it_is_again() -> None:
    silence = [Unknown("silent") for _ in range(8)]
    run = Run(Scripted("a", *silence, heard(), heard(), Unknown("silent"), heard()))
    assert len(run.said) == 2
    assert "not heard, which is not 'none'" in run.said[0]
    assert "silent" in run.said[0]
    assert run.said[1] == "notices: heard again"


def test_one_that_is_switched_off_is_told_once_and_asked_no_more() -> None:
    off = Scripted("off", SwitchedOff("403"))
    said: list[str] = []
    watch = NoticeWatch([off], lambda *_: None, said.append)
    watch.start()
    eventually(lambda: said == ["notices: 403"])
    eventually(lambda: not any(t.name == "listen-off" for t in threading.enumerate()))
    assert not off.over.is_set()


def test_a_fault_of_a_listener_leaves_the_machine_not_deaf() -> None:
    run = Run(Scripted("a", ZeroDivisionError("oops"), heard(NOTICE)))
    assert run.told == [((NOTICE,), True)]


@pytest.mark.parametrize("source", ["ec2", "gcp"])
@pytest.mark.parametrize("fault", [*FAULTS, 404, 429, 503])
def test_no_fault_makes_a_notice_or_a_circle(
    source: str, fault: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits here: the pauses that the watch wants are summed up instead."""
    monkeypatch.setattr(ec2, "LIMIT", 0.05)
    monkeypatch.setattr("elasticd.node.metadata.gcp.LIMIT", 0.05)
    with running(FakeEc2() if source == "ec2" else FakeGcp()) as fake:
        fake.lasting = fault
        told, slept, over = _listen(listeners(source, fake.url, "n-1"), 12)
        eventually(over)
    assert not any(notices for notices, _ in told)
    assert slept() / len(fake.asked) >= 1.0, "seconds for each request"


def _listen(
    found: Sequence[object], rounds: int
) -> tuple[list[tuple[tuple[Notice, ...], bool]], Callable[[], float], Callable[[], bool]]:
    """Lets each listen so many rounds."""
    told: list[tuple[tuple[Notice, ...], bool]] = []
    rests: list[float] = []
    done = threading.Event()

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) >= rounds * len(found):
            watch.stop()
            done.set()

    watch = NoticeWatch(found, lambda *t: told.append(t), lambda _: None, rest)  # type: ignore[arg-type]
    watch.start()
    return told, lambda: sum(rests), done.is_set


def test_after_minutes_of_errors_a_notice_is_still_heard() -> None:
    with running(FakeEc2()) as fake:
        fake.items[ACTION] = GOES
        fake.faults = [*[404] * 3, *[503] * 12]
        told, _, over = _listen(listeners("ec2", fake.url, "n-1"), 30)
        eventually(over)
    assert [n.kind for n in told[-1][0]] == ["interruption"]


@pytest.mark.parametrize(
    ("source", "url", "says"),
    [("azure", "", "unknown source 'azure'"), ("ec2", "https://x", "metadata URL")],
)
def test_a_machine_that_cannot_listen_says_so_and_goes_on(source: str, url: str, says: str) -> None:
    said: list[str] = []
    watch_for(source, url, "n-1", lambda *_: None, said.append).start()
    assert says in said[0]


def test_a_pool_without_notices_asks_nobody() -> None:
    said: list[str] = []
    watch_for("", "http://127.0.0.1:9", "n-1", lambda *_: None, said.append).start()
    assert said == []
    assert not any(t.name.startswith("listen-") and "ec2" in t.name for t in threading.enumerate())
