"""The data path: takes OpenAI requests, queues them, relays them to replicas."""

from elasticd.gateway.config import ApiKey, GatewayConfig
from elasticd.gateway.server import Gateway, run_gateway

__all__ = ["ApiKey", "Gateway", "GatewayConfig", "run_gateway"]
