"""Fixtures of the end-to-end tests: one real API server for all of them (for each worker under
pytest-xdist).

It runs as long as its process, because the files of this folder take turns with those of others. A
server that nothing asks takes a hundredth of a processor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.apiserver.binaries import (
    Announce,
    Unavailable,
    binaries,
    controller_manager,
    policy_oracle,
    scheduler_oracle,
)
from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import custom, wait_until_discovered
from tests.apiserver.helm import program
from tests.apiserver.nodes import Cluster
from tests.apiserver.prepared import prepared
from tests.e2e.helm import VERSIONS, Helm
from virt_admit.model.kubernetes import kinds

HERE = str(Path(__file__).parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; their time limit leaves out fixtures,
    which may have to build first.
    """
    for item in items:
        if str(item.path).startswith(HERE):  # parents of a Path would take 2 s for all items
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(300, func_only=True))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once why these tests were skipped, and what would help: a quiet run would not."""
    skipped = [
        report for report in terminalreporter.stats.get("skipped", []) if "e2e" in report.keywords
    ]
    for reason in sorted({report.longrepr[2] for report in skipped}):
        terminalreporter.write_line(
            f"end-to-end tests skipped: {reason.removeprefix('Skipped: ')}", yellow=True
        )


T = TypeVar("T")


def _built(request: pytest.FixtureRequest, build: Callable[[Announce], T]) -> T:
    """Return what is built.

    Skips where it cannot be; with VIRT_ADMIT_REQUIRE_E2E=1 that is a failure.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def announce(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", flush=True)

    try:
        return build(announce)
    except Unavailable as reason:
        if os.environ.get("VIRT_ADMIT_REQUIRE_E2E") == "1":
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A running API server, in which the definitions of every kind that we know are stored."""
    found = _built(request, binaries)
    with ControlPlane(found, stored=prepared(found)) as plane:
        yield plane


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> ControlPlane:
    """The running API server, when it serves every kind that we know."""
    wait_until_discovered(control_plane, {kind.resource for kind in custom(kinds.ALL)})
    return control_plane


@pytest.fixture(scope="session")
def policy_validator(request: pytest.FixtureRequest) -> Path:
    """The program that evaluates ValidatingAdmissionPolicies as the API server does."""
    return _built(request, policy_oracle)


@pytest.fixture(scope="module")
def nodes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of its own with controllers and two nodes, which run the pods of the webhook."""
    found = _built(request, binaries)
    _built(request, controller_manager)
    with Cluster(found) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def oracle(request: pytest.FixtureRequest) -> Path:
    """The program that answers as kube-scheduler's filters do."""
    return _built(request, scheduler_oracle)


@pytest.fixture(scope="session", params=VERSIONS)
def helm(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Helm:
    """The real helm, each of its two versions."""
    found = _built(request, lambda announce: program(request.param, announce))
    return Helm(
        found,
        int(request.param[-1]),
        tmp_path_factory.mktemp(request.param),
        control_plane.kubeconfig,
    )
