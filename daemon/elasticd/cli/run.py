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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from elasticd.cli.common import Commands, add_config, configuration
from elasticd.errors import ElasticdError, UsageError

if TYPE_CHECKING:
    from elasticd.cli.run_plan import Part
    from elasticd.ops.supervisor import Child, Ended
    from elasticd.settings.load import Configuration

Tell = Callable[[str], None]
_POLL = 0.5
_REPEAT = 15.0


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = commands.add_parser("run", help="everything on this machine, until stopped")
    add_config(parser)
    parser.set_defaults(call=run)


def run(args: argparse.Namespace) -> int:
    """Exit 0 after a stop that was asked for."""
    from elasticd.cli.demo_model import ensure_demo_model
    from elasticd.cli.run_plan import check_ray, make_state_dir, parts

    config = configuration(args, look_on_host=True)
    check_ray()
    make_state_dir(config)
    with only_supervisor(config.state_dir):
        ensure_demo_model(config, tell)
        return asyncio.run(Run(config, parts(config), tell).serve())


def tell(line: str) -> None:
    """One line of ours to whoever watches."""
    show(f"elasticd: {line}")


def show(text: str) -> None:
    """Text as it is. If nobody reads it any more, that stops nothing."""
    with suppress(OSError):
        print(text, flush=True)


@contextmanager
def only_supervisor(state_dir: Path) -> Iterator[None]:
    """Holds the state directory against a second `elasticd run`."""
    with (state_dir / "run" / "supervisor.lock").open("a+") as lock:
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
    """One life of the supervisor over the parts of `plan`."""

    def __init__(self, config: Configuration, plan: Sequence[Part], say: Tell) -> None:
        self._config = config
        self._plan = plan
        self._say = say
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._serving = False
        self._refused: Ended | None = None

    async def serve(self) -> int:
        """Runs until a signal, then stops everything in order."""
        from elasticd.cli.run_plan import check_ports
        from elasticd.ops.supervisor import BackOff, Child

        plan = self._plan
        run_dir = self._config.state_dir / "run"
        children = [Child(p.spec, run_dir, self._on_end, BackOff()) for p in plan]
        living = [child.spec.name for child in children if child.pid]
        check_ports([p for p in plan if p.spec.name not in living], self._config.path)
        if living:
            self._say(f"{', '.join(living)} still running from before: taken over")
        starting = [child.spec.name for child in children if not child.pid]
        if starting:
            self._say(f"starting {', '.join(starting)}")
        loop = asyncio.get_running_loop()
        # SIGHUP: the terminal is gone, and with it whoever could have stopped us.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        async with asyncio.TaskGroup() as group:
            for child in children:
                group.create_task(child.keep(), name=f"keep {child.spec.name}")
            watch = group.create_task(self._display(), name="display")
            await self._stop.wait()
            watch.cancel()
            await self._shut_down(children)
        if self._refused is not None:
            ended = self._refused
            raise ChildRefused(
                f"{ended.name} refused to start: {ended.last_words}\n"
                "machines of an earlier run, if there are any, were not touched"
            )
        return 0

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._say("hurrying; machines are still given back properly")
            self._hurry.set()
        self._stop.set()

    def _on_end(self, ended: Ended) -> None:
        self._say(f"{ended.name} {_how(ended)}; starting it again in {ended.again_in:g} s")
        if ended.code == UsageError.exit_code and (self._stop.is_set() or not self._serving):
            # Before anything serves, a refusal is for the person who started us; later the rest
            # goes on serving and the refusal is only told.
            self._refused = ended
            self._stop.set()

    async def _display(self) -> None:
        """Whatever goes wrong with what people see, what they see goes on."""
        try:
            await self._watch()
        except Exception as bad:
            self._say(f"the display failed ({bad!r}); the fleet is not touched by that")

    async def _watch(self) -> None:
        """Tells the way to the first replica, and what changes afterwards."""
        from elasticd.cli.admin_client import AdminClient
        from elasticd.cli.progress import Progress
        from elasticd.cli.spinner import Spinner

        client, progress = AdminClient(self._config.admin_socket), Progress()
        with Spinner(self._say, repeat=_REPEAT) as spinner:
            while True:
                try:
                    status = await asyncio.to_thread(client.status)
                except ElasticdError:
                    if not self._serving:
                        spinner.waiting("head, agent and controller to come up")
                else:
                    for line in progress.news(status):
                        spinner.say(line)
                    if progress.serving and not self._serving:
                        self._serving = True
                        spinner.done()
                        self._invite(spinner.say)
                    if not self._serving:
                        spinner.waiting(progress.waiting_for(status))
                await asyncio.sleep(_POLL)

    def _invite(self, say: Tell) -> None:
        settings = self._config.settings
        url, model = settings.gateway.listen.url, settings.models[0].name
        say(f"serving {', '.join(m.name for m in settings.models)} at {url}/v1; try")
        body = (
            f'{{"model": "{model}", "stream": true, '
            '"messages": [{"role": "user", "content": "Tell me about the lighthouse."}]}'
        )
        show(
            f"\n  curl -N {url}/v1/chat/completions "
            f"-H 'Content-Type: application/json' \\\n    -d '{body}'\n"
        )
        say("Ctrl-C stops it; `elasticd status` in another terminal shows the fleet")

    async def _shut_down(self, children: Sequence[Child]) -> None:
        from elasticd.cli.run_plan import releases

        if self._refused is None and releases(self._config):
            await self._release()
        elif self._refused is None:
            self._say("stopping; the machines are kept and their replicas go on")
        for child in reversed(children):
            await child.end(self._hurry)
        self._say("stopped")

    async def _release(self) -> None:
        """Gives every machine back. Does not return while one might be left, whatever happens:
        the controller is kept running meanwhile."""
        from elasticd.cli.admin_client import AdminClient
        from elasticd.cli.descent import Descent

        self._say("stopping; giving every machine back")
        descent, told = Descent(AdminClient(self._config.admin_socket), "elasticd run"), ""
        while True:
            try:
                left = await asyncio.to_thread(descent.look)
            except ElasticdError as bad:
                left = str(bad)
            if left is None:
                self._say("no machine is left")
                return
            if self._refused is not None:
                self._say("machines may be left: the controller refuses to run")
                return
            if left != told:
                self._say(f"waiting for {left}")
            told = left
            await asyncio.sleep(_POLL)
