"""One real vLLM, started as a node starts it, without Ray around it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from elasticd.ray_side.engine_command import engine_command
from tests.e2e.stack_config import free_ports
from tests.ray_side.fake_cluster import order

KEY = "the-engine-key"
MODEL = "m"
_ARGS = {
    "dtype": "float32",
    "enforce-eager": "true",
    "max-model-len": "1024",
    "max-num-seqs": "16",
    "scheduling-policy": "priority",
    "gpu-memory-utilization": "0.05",
    "kv-cache-memory-bytes": "67108864",
}
_ENV = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
_START = 240.0


@asynccontextmanager
async def real_engine(model: Path, log: Path, args: Mapping[str, str]) -> AsyncIterator[int]:
    """The port of an engine that serves."""
    (port,) = free_ports(1)
    asked = order(
        model=MODEL,
        model_path=str(model),
        key=KEY,
        engine_args=tuple({**_ARGS, **args}.items()),
        engine_env=tuple(_ENV.items()),
    )
    command = engine_command(asked, port, (), sys.executable, dict(os.environ))
    with log.open("wb") as out:
        process = subprocess.Popen(
            command.argv, env=dict(command.env), stdout=out, stderr=subprocess.STDOUT
        )
        try:
            await _until_healthy(process, port, log)
            yield port
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)


async def _until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline:
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            try:
                async with session.get(f"http://127.0.0.1:{port}/health") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.3)
    raise AssertionError(f"the engine does not serve after {_START:.0f} s")
