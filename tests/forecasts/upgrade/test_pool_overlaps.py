"""Nodes that several MachineConfigPools of OpenShift select."""

from __future__ import annotations

import pytest

from tests.cli.test_upgrade import node, pool
from virt_admit.forecasts.drain import node_notes
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of
from virt_admit.model.node_updates.config_pool_updates import CURRENT
from virt_admit.model.node_updates.operators import poolless_nodes
from virt_admit.reports.upgrade import text

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
            "a matches the custom MachineConfigPools gpu, infra (gpu selects ",
        ),
        (
            ["master", "infra", "gpu"],
            AMBIGUOUS,
            "a matches the custom MachineConfigPools gpu, infra (gpu selects ",
        ),
    ],
)
def test_a_node_is_updated_with_one_pool(roles: list[str], stops: list[str], says: str) -> None:
    own = node("a", {f"node-role.kubernetes.io/{role}": "" for role in roles})
    pools = [pool(name, name) for name in ("master", "worker", "infra", "gpu")]
    cluster = Snapshot([own, node("b", {"node-role.kubernetes.io/worker": ""}), *pools], ("*",))
    found = rehearse(cluster, Options())

    assert [str(stop.problem) for stop in found.stops] == stops
    assert text.verdict(found).startswith(
        "No: the upgrade leaves out 1 node." if stops else "Yes: 2 nodes "
    )
    assert {node for wave in found.waves for node in wave.nodes} == ({"b"} if stops else {"a", "b"})
    notes = list(node_notes.notes(own, cluster))
    assert len(notes) == bool(says)
    assert all(note.startswith(says) for note in notes)


def test_a_node_that_no_pool_selects_is_left_out_as_well() -> None:
    pools = [pool(name, name) for name in ("master", "worker")]
    other = node("b", {"node-role.kubernetes.io/worker": ""})
    for had, stops in (("rendered-infra-0", ["PoolMissing:a"]), ("", [])):
        own = node("a", {"node-role.kubernetes.io/infra": ""})
        own.data["metadata"]["annotations"] = {CURRENT: had} if had else {}
        found = rehearse(Snapshot([own, other, *pools], ("*",)), Options())

        assert [str(stop.problem) for stop in found.stops] == stops
        assert found.possible is not bool(stops)
        assert {name for wave in found.waves for name in wave.nodes} == {"b"}
        assert not any("reaches it" in each for each in found.rests_on)


def test_what_is_unread_does_not_hide_a_node_without_a_pool() -> None:
    roles = {f"node-role.kubernetes.io/{role}": "" for role in ("worker", "infra", "gpu")}
    pools = [pool(name, name) for name in ("worker", "infra", "gpu")]
    other = node("b", {"node-role.kubernetes.io/worker": ""})
    for more, stops in (({}, AMBIGUOUS), ({"kubernetes.io/os": "windows"}, [])):
        cluster = Snapshot([node("a", roles | more), other, *pools], ("nodes",))
        found = rehearse(cluster, Options())

        assert [str(stop.problem) for stop in found.stops] == stops
        assert found.possible is (False if stops else None)


def test_a_node_is_left_to_the_pool_whose_configuration_it_has() -> None:
    roles = {f"node-role.kubernetes.io/{role}": "" for role in ("worker", "infra", "gpu")}
    pools = [pool(name, name) for name in ("master", "worker", "infra", "gpu")]
    for role, had, command in (
        ("", "rendered-infra-0", "kubectl label node a node-role.kubernetes.io/gpu-"),
        ("", "rendered-worker-0", "kubectl label node a --list"),
        ("master", "rendered-infra-0", "kubectl label node a --list"),
    ):
        own = node("a", roles | ({f"node-role.kubernetes.io/{role}": ""} if role else {}))
        own.data["metadata"]["annotations"] = {CURRENT: had}
        found = poolless_nodes.of_node(own, Snapshot([own, *pools], ("*",)))

        assert found is not None
        assert command_of(found.remedy) == command
