"""Nodes that several MachineConfigPools of OpenShift select."""

from __future__ import annotations

import pytest

from tests.cli.test_upgrade import node, pool
from virt_admit.forecasts.drain import node_notes
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot

AMBIGUOUS = ["PoolAmbiguous:a"]


@pytest.mark.parametrize(
    ("roles", "stops", "says"),
    [
        (["worker"], [], ""),
        (["worker", "infra"], [], ""),
        (["infra"], [], ""),
        (["master", "worker"], [], ""),
        (
            ["master", "infra"],
            [],
            "a is updated with the masters, so the configuration of MachineConfigPool infra never",
        ),
        (
            ["worker", "infra", "gpu"],
            AMBIGUOUS,
            "a matches the custom MachineConfigPools gpu, infra, and the operator",
        ),
        (
            ["master", "infra", "gpu"],
            AMBIGUOUS,
            "a matches the custom MachineConfigPools gpu, infra, and the operator",
        ),
    ],
)
def test_a_node_is_updated_with_one_pool(roles: list[str], stops: list[str], says: str) -> None:
    own = node("a", {f"node-role.kubernetes.io/{role}": "" for role in roles})
    pools = [pool(name, name) for name in ("master", "worker", "infra", "gpu")]
    cluster = Snapshot([own, node("b", {"node-role.kubernetes.io/worker": ""}), *pools], ("*",))
    found = rehearse(cluster, Options())

    assert [str(stop.problem) for stop in found.stops] == stops
    assert {node for wave in found.waves for node in wave.nodes} == ({"b"} if stops else {"a", "b"})
    notes = list(node_notes.notes(own, cluster))
    assert len(notes) == bool(says)
    assert all(note.startswith(says) for note in notes)
