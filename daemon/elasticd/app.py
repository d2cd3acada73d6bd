"""The parts list: from a checked configuration to what each process is built of.

The only place where the controller's shell and the gateway meet. Everything is built here and
nothing is decided here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from elasticd import bootstrap
from elasticd.core.decide import Core
from elasticd.gateway.config import ApiKey, GatewayConfig
from elasticd.gateway.server import run_gateway
from elasticd.node.head import HeadConfig
from elasticd.ops.hangup import Hangups
from elasticd.runtime.config import ControllerConfig, PoolConfig
from elasticd.runtime.controller import run_controller
from elasticd.runtime.file_wishes import FileWishes
from elasticd.settings.load import Configuration, load


async def controller(
    config: Configuration, serve_again: bool = False, hangups: Hangups | None = None
) -> None:
    """The controller's whole life. `serve_again` ends a `down` of an earlier one."""
    await run_controller(controller_config(config, serve_again), Core, hangups)


async def gateway(config: Configuration, hangups: Hangups | None = None) -> None:
    """The gateway's whole life."""

    def read_again() -> GatewayConfig:
        return gateway_config(load(config.path))

    # One that came before there was a gateway: the file may have changed since it was read.
    missed = hangups is not None and hangups.take()
    first = load(config.path, look_on_host=False) if missed else config
    await run_gateway(gateway_config(first), read_again)


def pool_configs(config: Configuration) -> Mapping[str, PoolConfig]:
    """The provider of each pool, as the controller has it."""
    return FileWishes(config).pools


def controller_config(config: Configuration, serve_again: bool = False) -> ControllerConfig:
    """What the controller is told at start."""
    settings = config.settings
    agent_url = settings.agent.listen.url
    return ControllerConfig(
        state_dir=config.state_dir,
        wishes=FileWishes(config),
        agent_url=agent_url,
        admin_socket=config.admin_socket,
        serve_again=serve_again,
        admin_listen=(settings.admin.listen.host, settings.admin.listen.port),
        # The one provider there is rents this host, so its Python is ours.
        bootstrap=lambda node_id, token, gpus, listening: bootstrap.render(
            *(node_id, agent_url, token, sys.executable),
            expected_gpus=gpus,
            notices=listening.source,
            metadata_url=listening.url,
        ),
    )


def gateway_config(config: Configuration) -> GatewayConfig:
    """What the gateway is told at start."""
    settings = config.settings
    return GatewayConfig(
        admin_socket=config.admin_socket,
        state_dir=config.state_dir,
        host=settings.gateway.listen.host,
        port=settings.gateway.listen.port,
        api_keys=tuple(
            ApiKey(
                name=key.name,
                sha256_hex=key.hash.removeprefix("sha256:"),
                max_priority=key.max_priority,
                max_ongoing_requests=key.max_ongoing_requests,
            )
            for key in settings.gateway.api_keys
        ),
        idle_timeout=settings.gateway.idle_timeout,
        stall_after=settings.gateway.stall_after,
        first_byte_timeout=settings.gateway.first_byte_timeout,
        body_timeout=settings.gateway.body_timeout,
        max_body=settings.gateway.max_body,
        drain_timeout=max(model.drain_timeout for model in settings.models),
    )


def head_config(config: Configuration) -> HeadConfig:
    """What the managed head is told at start."""
    return HeadConfig(config.state_dir, config.settings.ray.port)
