"""Every promise once for each subject; `--subject` picks or adds some."""

from __future__ import annotations

import itertools
import os
import pkgutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conformance.subject import Subject
from tests.conformance.subjects import SUBJECTS
from tests.conformance.world import World

_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--subject",
        action="append",
        metavar="NAME|MODULE:CLASS",
        help=f"run against this subject only (repeatable): {', '.join(SUBJECTS)}, or yours",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--subject", default=None) or list(SUBJECTS)
        metafunc.parametrize("subject", chosen, indirect=True, scope="session")


@pytest.fixture(scope="session")
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    """One vendor for all tests of the run."""
    made: Subject = pkgutil.resolve_name(SUBJECTS.get(request.param, request.param))()
    if (why := made.unusable()) is not None:
        pytest.skip(why)
    made.open(tmp_path_factory.mktemp("subject"))
    yield made
    made.close()


@pytest.fixture
async def world(subject: Subject, tmp_path: Path) -> AsyncIterator[World]:
    """This test's part of it; empty before and after."""
    subject.begin(tmp_path)
    world = World(subject, f"conformance-{os.getpid()}-{next(_numbers)}")
    yield world
    await world.leave()
