"""What `elasticd run` shows: the way to the first replica, and what changes afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from elasticd.cli.admin_client import AdminClient
from elasticd.cli.output import printable
from elasticd.errors import ElasticdError

if TYPE_CHECKING:
    from elasticd.settings.load import Configuration

Tell = Callable[[str], None]
_POLL = 0.5
_REPEAT = 15.0


def tell(line: str) -> None:
    """One line of ours to whoever watches."""
    show(f"elasticd: {line}")


def show(text: str) -> None:
    """Text as it is. If nobody reads it any more, that stops nothing."""
    with suppress(OSError):
        print("\n".join(map(printable, text.split("\n"))), flush=True)


class Display:
    """`serving` becomes true with the first ready replica, for good. `notice` sees each status."""

    def __init__(
        self,
        config: Configuration,
        admin: AdminClient,
        say: Tell,
        notice: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._config = config
        self._admin = admin
        self._say = say
        self._notice = notice
        self.serving = False

    async def run(self) -> None:
        """Whatever goes wrong with what people see, what they see goes on."""
        try:
            await self._watch()
        except Exception as bad:
            self._say(f"the display failed ({bad!r}); the fleet is not touched by that")

    async def _watch(self) -> None:
        """Tells the way to the first replica, and what changes afterwards."""
        from elasticd.cli.progress import Progress
        from elasticd.cli.spinner import Spinner

        progress = Progress()
        with Spinner(self._say, repeat=_REPEAT) as spinner:
            while True:
                try:
                    status = await asyncio.to_thread(self._admin.status)
                except ElasticdError:
                    if not self.serving:
                        spinner.waiting("head, agent and controller to come up")
                else:
                    self._notice(status)
                    for line in progress.news(status):
                        spinner.say(line)
                    if progress.serving and not self.serving:
                        self.serving = True
                        spinner.done()
                        self._invite(spinner.say)
                    if not self.serving:
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
