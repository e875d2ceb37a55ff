"""An API server that asks a webhook, with nothing in the cluster before and after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.e2e.never_break.world import FAULTY, MACHINES, SHOP, instance, namespace, node
from tests.e2e.reach import BEFORE, Reach, reach
from tests.https.reviews import vm
from virt_admit.install.manifests import KUBEVIRT_NAMESPACES, SYSTEM_NAMESPACES


@pytest.fixture(scope="module")
def asker(crds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    with reach(crds, tmp_path_factory.mktemp("never-break")) as asker:
        homes = (SHOP, MACHINES, *SYSTEM_NAMESPACES, *KUBEVIRT_NAMESPACES)
        asker.kubectl("apply", [namespace(name) for name in homes])
        yield asker


@pytest.fixture(autouse=True)
def nothing_there(asker: Reach) -> Iterator[None]:
    """A cluster without anything in it, before and after."""
    asker.world()
    asker.policy()
    yield
    asker.send("delete", [*FAULTY, vm("db"), instance("db"), node("n1")], user=BEFORE)
