"""`elasticd run`: everything on this machine, under one thin supervisor.

It decides nothing about the fleet. It starts head, agent, controller and gateway, starts each
again that dies, tells what is being waited for, and stops all in order.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from elasticd.cli.admin_client import AdminClient
from elasticd.cli.common import Commands, add_config, configuration
from elasticd.cli.giving_back import PATIENCE, GivingBack
from elasticd.cli.run_display import Display, Tell, tell
from elasticd.cli.run_reload import Reloads
from elasticd.cli.unattended import SUPERVISOR_LOCK
from elasticd.errors import ElasticdError, UsageError
from elasticd.ops.hangup import Hangups, has_terminal
from elasticd.ops.limits import raise_descriptors

if TYPE_CHECKING:
    from elasticd.cli.run_plan import Part
    from elasticd.ops.supervisor import BackOff, Child, Ended
    from elasticd.settings.load import Configuration


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = commands.add_parser("run", help="everything on this machine, until stopped")
    add_config(parser)
    parser.set_defaults(call=run)


def run(args: argparse.Namespace) -> int:
    """Exit 0 after a stop that was asked for."""
    hangups = Hangups()
    raise_descriptors()
    from elasticd.cli.demo_model import ensure_demo_model
    from elasticd.cli.run_plan import check_ports, check_ray, make_state_dir, parts
    from elasticd.ops.systemd import notify

    config = configuration(args, look_on_host=True)
    check_ray()
    make_state_dir(config)
    with only_supervisor(config.state_dir):
        plan = parts(config)
        check_ports(plan, config)
        # From here on a reload is heard, and what takes long is done under systemd's eyes.
        notify("READY=1")
        ensure_demo_model(config, tell)
        life = Run(config, plan, tell, hangups, lambda: configuration(args, look_on_host=True))
        return asyncio.run(life.serve())


@contextmanager
def only_supervisor(state_dir: Path) -> Iterator[None]:
    """Holds the state directory against a second `elasticd run`."""
    with (state_dir / "run" / SUPERVISOR_LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise UsageError(
                f"`elasticd run` already runs for {state_dir} (process {lock.read().strip()}); "
                "stop it, or give this one another state_dir"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _how(ended: Ended) -> str:
    """How a child ended. What a killed one wrote last does not explain its end."""
    if ended.code is None:
        return "ended"
    if ended.code < 0:
        return f"was killed ({signal.Signals(-ended.code).name})"
    return f"ended with code {ended.code}" + (f": {ended.last_words}" if ended.last_words else "")


class ChildRefused(ElasticdError):
    """A child will not start, however often it is tried."""

    exit_code = 2


class Run:
    """One life of the supervisor over the parts of `plan`.

    `patience`: seconds that a controller may be silent while machines are given back. `back_off`:
    how soon a child that ended is started again; `None`: as usual.
    """

    def __init__(
        self,
        config: Configuration,
        plan: Sequence[Part],
        say: Tell,
        hangups: Hangups,
        reread: Callable[[], Configuration],
        patience: float = PATIENCE,
        back_off: BackOff | None = None,
    ) -> None:
        self._config = config
        self._plan = plan
        self._say = say
        self._admin = AdminClient(config.admin_socket)
        self._reloads = Reloads(self._admin, reread, say)
        self._display = Display(config, self._admin, say, self._reloads.notice)
        self._hangups = hangups
        # Started with nohup or without a terminal, we do not hang on one.
        self._in_terminal = has_terminal() and not hangups.ignored_before
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._refused: Ended | None = None
        self._patience = patience
        self._back_off = back_off
        self._giving_back = GivingBack(self._admin, config.state_dir, say, self._hurry)
        self._left: ElasticdError | None = None

    async def serve(self) -> int:
        """Runs until a signal, then stops everything in order. Raises `ElasticdError` when a child
        will not start, and when machines may be left that should be none."""
        from elasticd.ops.supervisor import BackOff, Child

        run_dir = self._config.state_dir / "run"
        back_off = self._back_off or BackOff()
        children = [Child(p.spec, run_dir, self._on_end, back_off) for p in self._plan]
        self._introduce(children)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        with self._hangups.heard_by(self._on_hangup):
            async with asyncio.TaskGroup() as group:
                for child in children:
                    group.create_task(child.keep(), name=f"keep {child.spec.name}")
                beside = [
                    group.create_task(self._display.run(), name="display"),
                    group.create_task(self._follow_reloads(children), name="reloads"),
                ]
                await self._stop.wait()
                for task in beside:
                    task.cancel()
                await asyncio.wait(beside)
                await self._shut_down(children)
        if self._left is not None:
            raise self._left
        if self._refused is not None:
            ended = self._refused
            raise ChildRefused(
                f"{ended.name} refused to start: {ended.last_words}\n"
                "machines of an earlier run, if there are any, were not touched"
            )
        return 0

    def _introduce(self, children: Sequence[Child]) -> None:
        living = [child.spec.name for child in children if child.pid]
        if living:
            self._say(f"{', '.join(living)} still running from before: taken over")
        starting = [child.spec.name for child in children if not child.pid]
        if starting:
            self._say(f"starting {', '.join(starting)}")

    def _on_hangup(self) -> None:
        if self._in_terminal and not has_terminal():
            # The terminal is gone, and with it whoever could have stopped us.
            self._on_signal()
        elif not self._stop.is_set():
            self._reloads.hang_up()

    async def _follow_reloads(self, children: Sequence[Child]) -> None:
        """One after the other; several that are asked for meanwhile are one."""
        while True:
            await self._reloads.wanted.wait()
            self._config = await self._reloads.follow(children) or self._config

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._say("hurrying; machines are still given back if the controller answers")
            self._hurry.set()
        self._stop.set()

    def _on_end(self, ended: Ended) -> None:
        if self._stop.is_set() and ended.name == "controller":
            self._giving_back.controller_died()
        if ended.code == UsageError.exit_code and (
            self._stop.is_set() or not self._display.serving
        ):
            # Before anything serves, a refusal is for the person who started us; later the rest
            # goes on serving and the refusal is only told.
            self._say(f"{ended.name} {_how(ended)}; it is not started again")
            self._refused = ended
            self._stop.set()
        else:
            self._say(f"{ended.name} {_how(ended)}; starting it again in {ended.again_in:g} s")

    async def _shut_down(self, children: Sequence[Child]) -> None:
        from elasticd.cli.run_plan import releases

        if self._refused is None:
            await self._hear_of_the_last_reload(children)
        if self._refused is None and releases(self._config):
            await self._release()
        elif self._refused is None:
            self._say("stopping; the machines are kept and their replicas go on")
        for child in reversed(children):
            await child.end(self._hurry)
        self._say("stopped")

    async def _hear_of_the_last_reload(self, children: Sequence[Child]) -> None:
        """What `on_stop` has just become counts. A hurry goes on with what is known."""
        heard = asyncio.ensure_future(self._reloads.at_stop(children))
        hurried = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({heard, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if heard.done():
            self._config = heard.result() or self._config
        else:
            heard.cancel()

    def _controller_refuses(self) -> bool:
        return self._refused is not None and self._refused.name == "controller"

    async def _release(self) -> None:
        """Gives every machine back; the controller is kept running meanwhile."""
        self._say("stopping; giving every machine back")
        try:
            await self._giving_back.run(self._controller_refuses, self._patience)
        except ElasticdError as left:
            self._left = left
