"""What the kernel tells about memory, read from files as it writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.node.host_memory import Host, Memory, weights_size

GIB = 1 << 30
MEMINFO = """MemTotal:       67108864 kB
MemFree:         1000000 kB
MemAvailable:   33554432 kB
"""
PRESSURE = """some avg10=40.00 avg60=0.00 avg300=0.00 total=0
full avg10=12.50 avg60=0.00 avg300=0.00 total=0
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """64 GiB, half of it available, in no control group."""
    _write(tmp_path / "proc" / "meminfo", MEMINFO)
    return Host(tmp_path / "proc", tmp_path / "cgroup")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_machine_without_limits_has_what_the_kernel_calls_available(host: Host) -> None:
    assert host.memory() == Memory(64 * GIB, 32 * GIB, None)


def test_pressure_is_the_share_of_time_in_which_everything_stands_still(host: Host) -> None:
    _write(host.proc / "pressure" / "memory", PRESSURE)
    memory = host.memory()
    assert memory is not None
    assert memory.pressure == 12.5
    assert memory.shortage(None) == "processes stand still for it 12 % of the time"


def test_a_containers_limit_counts_as_the_machines(host: Host) -> None:
    _write(host.proc / "self" / "cgroup", "0::/pod/engine\n")
    _write(host.cgroup / "pod" / "engine" / "memory.max", "max\n")
    _write(host.cgroup / "pod" / "memory.max", f"{8 * GIB}\n")
    _write(host.cgroup / "pod" / "memory.current", f"{6 * GIB}\n")
    _write(host.cgroup / "pod" / "memory.stat", f"anon 1\ninactive_file {GIB}\n")
    assert host.memory() == Memory(8 * GIB, 3 * GIB, None)


def test_the_older_control_groups_are_read_too(host: Host) -> None:
    _write(host.proc / "self" / "cgroup", "5:devices:/\n4:cpu,memory:/docker/x\n0::/\n")
    group = host.cgroup / "memory" / "docker" / "x"
    _write(group / "memory.limit_in_bytes", f"{4 * GIB}\n")
    _write(group / "memory.usage_in_bytes", f"{3 * GIB}\n")
    _write(group / "memory.stat", "total_inactive_file 0\n")
    _write(group / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    _write(host.cgroup / "memory" / "memory.limit_in_bytes", "9223372036854771712\n")
    _write(host.cgroup / "memory" / "memory.usage_in_bytes", "1\n")
    assert host.memory() == Memory(4 * GIB, GIB, None)
    assert host.memory_kills() == 3


def test_a_container_that_sees_only_its_own_group_reads_the_root(host: Host) -> None:
    _write(host.proc / "self" / "cgroup", "0::/a/path/of/the/host\n")
    _write(host.cgroup / "memory.max", f"{2 * GIB}\n")
    _write(host.cgroup / "memory.current", f"{GIB}\n")
    _write(host.cgroup / "memory.events", "oom 2\noom_kill 1\n")
    assert host.memory() == Memory(2 * GIB, GIB, None)
    assert host.memory_kills() == 1


def test_without_a_group_of_our_own_the_machines_kills_count(host: Host) -> None:
    assert host.memory_kills() is None
    _write(host.proc / "vmstat", "pgfault 9\noom_kill 7\n")
    assert host.memory_kills() == 7


def test_what_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    assert Host(tmp_path, tmp_path).memory() is None


@pytest.mark.parametrize(
    ("available", "weights", "short"),
    [
        (10 * GIB, None, False),
        (4 * GIB, None, True),  # below a twentieth
        (10 * GIB, 20 * GIB, True),
        (30 * GIB, 20 * GIB, False),
        (60 * GIB, 400 * GIB, False),  # mapped a part at a time: half the machine is enough
        (40 * GIB, 400 * GIB, True),
    ],
)
def test_an_engine_needs_a_twentieth_of_the_memory_and_room_for_its_weights(
    available: int, weights: int | None, short: bool
) -> None:
    assert bool(Memory(100 * GIB, available).shortage(weights)) == short


def test_weights_are_the_files_that_hold_them(tmp_path: Path) -> None:
    assert weights_size(str(tmp_path)) is None
    assert weights_size("org/a-model-by-name") is None
    for name, size in (("a.safetensors", 5), ("b.safetensors", 6), ("config.json", 1000)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert weights_size(str(tmp_path)) == 11
