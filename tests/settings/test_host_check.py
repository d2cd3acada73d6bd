"""What a model needs on this host is missed before anything starts."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from pydantic import BaseModel

from elasticd.provider import ProviderPlugin
from elasticd.settings.load import BadConfiguration, Configuration, load
from tests.settings.conftest import PROVIDERS, _never

TEXT = """
    cluster: test
    state_dir: state
    node_pools:
      - {name: here, provider: local, max_nodes: 1, gpus: GPUS}
      - {name: there, provider: cloud, max_nodes: 1, region: north}
    models:
      - {name: m, pools: [POOLS], source: "file:SOURCE", ENGINE gpus_per_replica: 2}
"""


class LocalOptions(BaseModel):
    """What decides here of the local provider's keys."""

    gpus: int | str


KNOWN = {**PROVIDERS, "local": lambda: ProviderPlugin(LocalOptions, _never)}


class Host:
    """A directory with a model in `weights` and a configuration beside it."""

    def __init__(self, root: Path) -> None:
        self.path = root / "elasticd.yaml"
        (root / "weights").mkdir()

    def load(
        self,
        *,
        gpus: str = "2",
        pools: str = "here",
        source: str = "weights",
        command: str = "",
        look: bool = True,
    ) -> Configuration:
        engine = f"engine: {{command: [{command}, '{{port}}']}}," if command else ""
        text = textwrap.dedent(TEXT).replace("GPUS", gpus).replace("POOLS", pools)
        self.path.write_text(text.replace("SOURCE", source).replace("ENGINE", engine))
        return load(self.path, KNOWN, look_on_host=look)

    def problem(self, **how: str) -> str:
        with pytest.raises(BadConfiguration) as caught:
            self.load(**how)  # type: ignore[arg-type]
        (problem,) = caught.value.problems
        return f"{problem.line} {problem.path}: {problem.message}"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_model_directory_that_is_not_there_is_told(host: Host) -> None:
    missing = host.path.parent / "wheights"
    expected = f"8 models[0].source: there is no directory {missing}"
    assert host.problem(source="wheights").startswith(expected)


def test_a_program_that_cannot_be_found_is_told(host: Host) -> None:
    expected = "8 models[0].engine.command: the program no-such-engine is not on the PATH"
    assert host.problem(command="no-such-engine").startswith(expected)
    assert "does not exist" in host.problem(command="/no/such/engine")


def test_a_program_on_the_path_or_beside_python_is_fine(host: Host) -> None:
    for program in ("sh", "python", "/bin/sh", "./here.sh"):
        host.load(command=program)


def test_a_replica_that_fits_no_machine_is_told(host: Host) -> None:
    expected = "8 models[0].gpus_per_replica: a replica needs 2 GPUs and a machine of here has"
    assert host.problem(gpus="1").startswith(expected)


@pytest.mark.parametrize(("gpus", "pools"), [("auto", "here"), ("1", "here, there")])
def test_gpus_that_are_not_known_here_are_not_judged(host: Host, gpus: str, pools: str) -> None:
    host.load(gpus=gpus, pools=pools)


def test_auto_needs_a_model_whose_shape_can_be_read(host: Host) -> None:
    asked = TEXT.replace("gpus_per_replica: 2", "gpus_per_replica: auto")
    text = textwrap.dedent(asked).replace("GPUS", "1").replace("POOLS", "here")
    host.path.write_text(text.replace("SOURCE", "weights").replace("ENGINE", ""))
    with pytest.raises(BadConfiguration) as caught:
        load(host.path, KNOWN)
    (problem,) = caught.value.problems
    assert problem.path == "models[0].source"
    assert problem.message.startswith("gpus_per_replica: auto needs its shape: there is no ")


def test_a_mistake_elsewhere_does_not_hide_what_is_missing_here(host: Host) -> None:
    text = textwrap.dedent(TEXT).replace("GPUS", "2").replace("POOLS", "here")
    text = text.replace("SOURCE", "wheights").replace("ENGINE", "") + "gateway: {listen: 3}\n"
    host.path.write_text(text)
    with pytest.raises(BadConfiguration) as caught:
        load(host.path, KNOWN)
    assert [p.path for p in caught.value.problems] == ["models[0].source", "gateway.listen"]


def test_other_providers_machines_have_their_own_disks(host: Host) -> None:
    host.load(pools="there", source="elsewhere", command="no-such-engine")


def test_what_already_runs_is_looked_after_although_the_model_vanished(host: Host) -> None:
    assert host.load(source="wheights", look=False).settings.cluster == "test"
