"""The keys of a local pool, and what it offers for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from elasticd.provider import Market, PoolContext, Rejected
from elasticd_providers.local import LocalOptions
from elasticd_providers.local.catalog import Catalog, HostGpus, host_gpus
from elasticd_providers.local.environment import machine_environment
from elasticd_providers.local.switches import Switches


def _catalog(real: HostGpus, accelerators: tuple[str, ...] = (), **options: Any) -> Catalog:
    context = PoolContext("p", "c", "l", Path("/nowhere"), Market.SPOT, accelerators)
    return Catalog(context, LocalOptions.model_validate(options), real)


_NONE = HostGpus(0, "nvidia")


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"max_machine": 3}, "max_machine"),
        ({"boot_delay": 3}, "a duration needs a unit"),
        ({"boot_delay": "3 fortnights"}, "not a duration"),
        ({"price": 0.1}, "an amount needs its currency"),
        ({"price": "0.10"}, "an amount needs its currency"),
        ({"gpus": "some"}, "auto"),
        ({"gpus": True}, "gpus"),
        ({"zones": []}, "zones"),
    ],
)
def test_wrong_options_are_refused(option: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        LocalOptions.model_validate(option)


def test_prices_are_exact_millionths_and_durations_are_seconds() -> None:
    options = LocalOptions.model_validate({"price": "0.10 USD", "boot_delay": "1.5m"})
    assert options.price == (100_000, "USD")
    assert options.boot_delay == 90.0


def test_every_zone_is_an_offering_with_the_pools_price() -> None:
    catalog = _catalog(_NONE, zones=["a", "b"], price="0.10 CNY", gpus=2, gpu_kind="A10G")
    offers = catalog.offerings(Switches(out_of_capacity=("b",)), machines=0)
    assert [(o.zone, o.available) for o in offers] == [("a", True), ("b", False)]
    assert {(o.gpu_kind, o.gpu_count, o.price_micros, o.currency) for o in offers} == {
        ("A10G", 2, 100_000, "CNY")
    }


def test_auto_shares_out_real_gpus_once_and_declares_none() -> None:
    catalog = _catalog(HostGpus(4, "L4"))
    (offer,) = catalog.offerings(Switches(), machines=0)
    assert (offer.gpu_kind, offer.gpu_count, offer.available) == ("L4", 4, True)
    assert catalog.declared_gpus is None
    (second,) = catalog.offerings(Switches(), machines=1)
    assert not second.available


def test_auto_declares_one_gpu_where_there_is_none() -> None:
    assert _catalog(_NONE).declared_gpus == 1


def test_a_pool_whose_accelerators_leave_nothing_is_refused() -> None:
    with pytest.raises(Rejected, match="accelerators"):
        _catalog(_NONE, accelerators=("H100",))
    assert _catalog(_NONE, accelerators=("H100",), gpu_kind="H100").declared_gpus == 1


def test_a_host_mask_limits_what_is_shared_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor n in 0 1 2 3; do echo 'NVIDIA L4, 23034'; done\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert host_gpus({}) == HostGpus(4, "L4", 23034)
    real = host_gpus({"CUDA_VISIBLE_DEVICES": "2,3"})
    (offer,) = _catalog(real).offerings(Switches(), machines=0)
    assert (offer.gpu_count, offer.gpu_memory_mib) == (2, 23034)


def test_more_declared_gpus_than_the_host_mask_leaves_are_refused() -> None:
    masked = HostGpus(0, "nvidia", masked=2)
    assert _catalog(masked, gpus=2).declared_gpus == 2
    with pytest.raises(Rejected, match="gpus: 4, but CUDA_VISIBLE_DEVICES leaves 2"):
        _catalog(masked, gpus=4)


def test_a_machine_gets_the_host_mask_unless_it_masks_everything() -> None:
    def mask(value: str, declared: int | None) -> str | None:
        ours = {"CUDA_VISIBLE_DEVICES": value}
        return machine_environment(Path("/n"), declared, ours).get("CUDA_VISIBLE_DEVICES")

    assert mask("2,3", 2) == "2,3"
    assert mask("2,3", None) == "2,3"
    assert mask("", 1) is None
    assert mask("", None) == ""
