"""The single processes: `controller`, `gateway`, `agent`, `head`, and `node` on rented machines."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from pathlib import Path

from elasticd.cli.common import Commands, add_config, configuration
from elasticd.cli.output import tell
from elasticd.errors import ElasticdError, UsageError
from elasticd.ops.hangup import Hangups
from elasticd.ops.limits import raise_descriptors

_CONTROLLER = """\
One of elasticd's processes: decides what to rent, to start and to give back. It keeps the ledger,
asks the providers, and answers the other commands. An agent must run beside it for replicas to
start, and a gateway for requests to be served."""
_GATEWAY = """\
One of elasticd's processes: takes the requests of clients and passes them to replicas. It learns
from the controller where they are, and goes on with what it last knew while that is away."""
_AGENT = """\
One of elasticd's processes: lets rented machines join Ray and starts and stops replicas there, as
the controller orders. It needs a Ray head: `elasticd head`, or the one that ray.address names."""
_HEAD = """\
One of elasticd's processes: the head of the Ray cluster that machines join, for a configuration
without ray.address. The agent talks to it."""
_ALL = (
    "Use `elasticd run` for everything on one machine: it starts all of them and looks after them."
)


def add_to(commands: Commands) -> None:
    """Declares the commands."""
    for name, call, help_text, does in (
        ("controller", controller, "decides: the ledger, providers, the admin API", _CONTROLLER),
        ("gateway", gateway, "the OpenAI-compatible entry", _GATEWAY),
        ("agent", agent, "the Ray driver: starts and stops replicas", _AGENT),
        ("head", head, "the managed Ray head", _HEAD),
    ):
        parser = commands.add_parser(name, help=help_text, description=f"{does}\n{_ALL}")
        add_config(parser)
        if call is controller:
            parser.add_argument(
                "--serve",
                action="store_true",
                help="serve again after a `down`; without it a restarted controller stays down",
            )
        parser.set_defaults(call=call)
    # Declared for the help text; `main` hands its arguments on before they are parsed here.
    commands.add_parser("node", help="the watcher of one rented machine", add_help=False)


def controller(args: argparse.Namespace) -> int:
    """Runs until stopped; SIGHUP reads the configuration again."""
    hangups = Hangups()
    raise_descriptors()
    from elasticd import app
    from elasticd.cli.demo_model import ensure_demo_model
    from elasticd.cli.noted_place import note_place
    from elasticd.cli.whereabouts import Whereabouts
    from elasticd.ops import folded
    from elasticd.ops.telemetry import set_up_logs

    config = configuration(args)
    ensure_demo_model(config, tell)
    if not args.serve:
        tell_if_down(config.state_dir)
    note_place(config.path, Whereabouts(config.admin_socket, config.state_dir))
    set_up_logs("controller")
    folded.run(lambda: app.controller(config, args.serve, hangups))
    return 0


def tell_if_down(state_dir: Path) -> None:
    """A controller that stays down does nothing but give back: people should know why."""
    from elasticd.cli.last_known import last_known

    try:
        down = last_known(state_dir).status.get("down")
    except ElasticdError:
        return  # there is none yet, or the controller itself is about to say what is wrong with it
    if down:
        tell(
            "`elasticd down` holds: machines are given back and none is rented; to serve again, "
            "start it with --serve: `elasticd controller --serve`"
        )


def gateway(args: argparse.Namespace) -> int:
    """Runs until stopped, then finishes what runs; SIGHUP reads the configuration again."""
    hangups = Hangups()
    raise_descriptors()
    from elasticd import app
    from elasticd.gateway.loop import new_loop
    from elasticd.ops import folded
    from elasticd.ops.telemetry import set_up_logs

    config = configuration(args)
    set_up_logs("gateway")
    folded.run(lambda: app.gateway(config, hangups), new_loop)
    return 0


def agent(args: argparse.Namespace) -> int:
    """Runs until stopped; replicas go on."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it has nothing to reload and must not end
    raise_descriptors()
    from elasticd.cli.run_plan import check_ray
    from elasticd.ops import folded
    from elasticd.ops.telemetry import set_up_logs

    config = configuration(args)
    check_ray()
    set_up_logs("agent")
    from elasticd.ray_side.agent import AgentConfig, run_agent

    listen, ray = config.settings.agent.listen, config.settings.ray
    address = str(ray.address) if ray.address else f"127.0.0.1:{ray.port}"
    agent_config = AgentConfig(config.state_dir, address, listen.host, listen.port)
    folded.run(lambda: run_agent(agent_config))
    return 0


def head(args: argparse.Namespace) -> int:
    """Runs until stopped; nodes and replicas go on without it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it has nothing to reload and must not end
    raise_descriptors()
    from elasticd import app
    from elasticd.cli.run_plan import check_ray
    from elasticd.node.head import run_head

    config = configuration(args)
    check_ray()
    if not config.settings.ray.managed:
        raise UsageError(
            f"{config.path}: ray.address names a head that runs elsewhere; there is none to manage"
        )
    return run_head(app.head_config(config))


def node(argv: Sequence[str]) -> int:
    """The watcher, with its own command line."""
    raise_descriptors()
    from elasticd.node.watcher import main

    return main(argv)
