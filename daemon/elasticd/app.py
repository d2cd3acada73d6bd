"""The parts list: from a checked configuration to what each process is built of.

The only place where the controller's shell and the gateway meet. Everything is built here and
nothing is decided here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from elasticd import bootstrap
from elasticd.core.decide import Core
from elasticd.gateway.config import GatewayConfig
from elasticd.gateway.server import run_gateway
from elasticd.node.head import HeadConfig
from elasticd.provider import Market
from elasticd.runtime.config import ControllerConfig, PoolConfig
from elasticd.runtime.controller import run_controller
from elasticd.settings.fleet import to_fleet
from elasticd.settings.load import Configuration


async def controller(config: Configuration, serve_again: bool = False) -> None:
    """The controller's whole life. `serve_again` ends a `down` of an earlier one."""
    await run_controller(controller_config(config, serve_again), Core)


async def gateway(config: Configuration) -> None:
    """The gateway's whole life."""
    await run_gateway(gateway_config(config))


def controller_config(config: Configuration, serve_again: bool = False) -> ControllerConfig:
    """What the controller is told at start."""
    settings = config.settings
    agent_url = settings.agent.listen.url
    return ControllerConfig(
        state_dir=config.state_dir,
        fleet=to_fleet(config),
        pools=_pools(config),
        agent_url=agent_url,
        admin_socket=config.admin_socket,
        serve_again=serve_again,
        admin_listen=(settings.admin.listen.host, settings.admin.listen.port),
        # The one provider there is rents this host, so its Python is ours.
        bootstrap=lambda node_id, token: bootstrap.render(
            node_id, agent_url, token, sys.executable
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
        idle_timeout=settings.gateway.idle_timeout,
        drain_timeout=max(model.drain_timeout for model in settings.models),
    )


def head_config(config: Configuration) -> HeadConfig:
    """What the managed head is told at start."""
    return HeadConfig(config.state_dir, config.settings.ray.port)


def _pools(config: Configuration) -> Mapping[str, PoolConfig]:
    return {
        pool.name: PoolConfig(
            plugin=config.plugins[pool.name],
            options=config.options[pool.name],
            market=Market(pool.market) if pool.market else None,
        )
        for pool in config.settings.node_pools
    }
