"""What of our own environment a machine sees: an allow-list, since secrets live in environments.

Passed on: the locale and time zone, where Python and shared libraries are found, the caches'
place, certificates and proxies, and the tuning of numeric libraries and engines by prefix.
Never: anything whose name sounds like a secret or whose value is a URL with a password in it, and
everything not listed (tokens of clouds and hubs, and Ray's and elasticd's own variables, which a
node sets for itself).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

PASSED = frozenset(
    {
        "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
        "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    }
)  # fmt: skip
PASSED_PREFIXES = ("LC_", "OMP_", "OPENBLAS_", "MKL_", "KMP_", "NCCL_", "TORCH", "VLLM_", "HF_")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|_KEY$|AUTH", re.IGNORECASE)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s]*:[^/\s]*@")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def visible_devices(environ: Mapping[str, str]) -> list[str] | None:
    """The GPUs that the operator's mask leaves; `None`: there is no mask."""
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    if mask is None:
        return None
    return [name for word in mask.split(",") if (name := word.strip()) not in ("", "NoDevFiles")]


def machine_environment(
    node_dir: Path, declared_gpus: int | None, ours: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a machine's init, and so of its bootstrap script.

    `HOME` and `TMPDIR` lie in the node directory, so that they go with the machine and no stray
    file of the user's home decides anything; downloads and compiled kernels stay in the user's
    cache, as they would on a machine image.
    """
    environment = {
        name: value
        for name, value in ours.items()
        if (name in PASSED or name.startswith(PASSED_PREFIXES))
        and not _SECRET.search(name)
        and not _URL_WITH_PASSWORD.search(value)
    }
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), ours.get("PATH") or _DEFAULT_PATH]
    )
    environment["HOME"] = str(node_dir / "home")
    environment["TMPDIR"] = str(node_dir / "tmp")
    cache = ours.get("XDG_CACHE_HOME") or (f"{home}/.cache" if (home := ours.get("HOME")) else None)
    if cache:
        environment["XDG_CACHE_HOME"] = cache
    environment["ELASTICD_NODE_DIR"] = str(node_dir)
    if declared_gpus is not None:
        environment["ELASTICD_DECLARED_GPUS"] = str(declared_gpus)
        if not visible_devices(ours):
            # Nobody is to use a real GPU; declared ones are none, and Ray would refuse to start.
            environment.pop("CUDA_VISIBLE_DEVICES", None)
    return environment
