"""How much memory GPUs have, by the names that drivers, clouds and people give them.

As of 2026-10, from vendors' and clouds' listings: MiB as the driver reports it, of a range the
lower end. A provider that knows better says so in its Offering. A name that stands for cards of
several sizes (A100, V100) is not in the table: unknown is better than wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

KNOWN_GPUS: Mapping[str, int] = {
    "T4": 15360,
    "V100-16G": 16179,
    "V100-32G": 32460,
    "A10G": 22528,
    "L4": 22528,
    "RTX 3090": 24166,
    "RTX 4090": 24064,
    "RTX 4090 48G": 48537,
    "vGPU-48GB": 48537,
    "RTX 5090": 32563,
    "RTX PRO 4500": 32768,
    "RTX A5000": 24268,
    "RTX A6000": 48640,
    "RTX 6000 Ada": 48640,
    "L40S": 45465,
    "A100-40G": 40448,
    "A100-80G": 81100,
    "A800": 81100,
    "H800": 81100,
    "H100": 81100,
    "H20": 97894,
    "RTX PRO 6000": 97894,
    "H200": 143155,
    "B200": 183296,
    "B300": 274432,
    "AMD-Instinct-MI300X-OAM": 196505,
    "AMD-Instinct-MI325X-OAM": 262041,
    "AMD-Instinct-MI355X-OAM": 294809,
    "Ascend910B4": 32768,
    "Ascend910B3": 65536,
    "Ascend910B2": 65536,
    "Ascend910C": 65536,
}
"""MiB of one GPU (of the Ascend 910C: of one die), by the name we use for it."""

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "V100-16G": ("V100-SXM2-16GB", "V100-PCIE-16GB", "V100 16GB"),
    "V100-32G": ("V100-SXM2-32GB", "V100-SXM3-32GB", "V100-PCIE-32GB", "V100 32GB"),
    "RTX 4090 48G": ("RTX 4090 48GB",),
    "vGPU-48GB": ("vGPU-48G",),
    "RTX 6000 Ada": ("RTX 6000 Ada Generation",),
    "A100-40G": ("A100-SXM4-40GB", "A100-PCIE-40GB", "A100 40GB", "A100 40GB PCIe"),
    "A100-80G": ("A100-SXM4-80GB", "A100 80GB", "A100 80GB PCIe"),
    "A800": ("A800-SXM4-80GB", "A800 80GB", "A800 80GB PCIe", "A800-80G"),
    "H800": ("H800 80GB", "H800-80G", "H800 PCIe"),
    "H100": ("H100 80GB HBM3", "H100 80GB", "H100-80G", "H100 PCIe"),
    "H20": ("H20-96G", "H20 96GB"),
    "RTX PRO 6000": (
        "RTX PRO Server 6000",
        "RTX PRO 6000 Blackwell Server Edition",
        "RTX PRO 6000 Blackwell Workstation Edition",
    ),
    "RTX PRO 4500": ("RTX PRO 4500 Blackwell",),
    "H200": ("H200 141GB", "H200-141G"),
    "AMD-Instinct-MI300X-OAM": ("MI300X", "AMD-Instinct-MI300X-HF"),
    "AMD-Instinct-MI325X-OAM": ("MI325X",),
    "AMD-Instinct-MI355X-OAM": ("MI355X",),
}
_MAKERS = re.compile(r"^(nvidia|geforce|tesla|quadro)")
_SEPARATORS = re.compile(r"[\s_\-]+")


def gpu_memory_mib(gpu_kind: str) -> int | None:
    """Memory of one GPU of a kind in MiB; `None` when the name does not tell."""
    return _BY_KEY.get(_key(gpu_kind))


def _key(name: str) -> str:
    """One spelling of a name: case, blanks, dashes and the maker's brands do not count."""
    key = _SEPARATORS.sub("", name.casefold())
    while (shorter := _MAKERS.sub("", key)) != key:
        key = shorter
    return key


_BY_KEY: Mapping[str, int] = {
    _key(name): mib for kind, mib in KNOWN_GPUS.items() for name in (kind, *_ALIASES.get(kind, ()))
}
