"""Pools that are paused: those that hold the next release,
and those that wait as they are meant to.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest, node
from tests.cli.test_upgrade import kubevirt
from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of
from virt_admit.model.node_updates.operators import paused_pools, release_refusals
from virt_admit.reports.upgrade import text

SUPPORTED = (
    "KubeletMinorVersionUpgradeable: Kubelet minor version (1.27.9) on node w is behind the "
    "expected API server version; nevertheless, it will continue to be supported in the next "
    "OpenShift minor version upgrade."
)
TOO_OLD = (
    "KubeletMinorVersionUpgradeable: Kubelet minor version (1.27.9) on node w will not be "
    "supported in the next OpenShift minor version upgrade."
)
ROLE = "node-role.kubernetes.io/"


def host(name: str, role: str, kubelet: str) -> Object:
    found = node(name, {f"{ROLE}{role}": ""})
    found["status"].value["nodeInfo"] = {"kubeletVersion": kubelet}
    return found


def pool(name: str, role: str, *, paused: bool, labels: dict[str, str] | None = None) -> Object:
    selector = {"matchLabels": {f"{ROLE}{role}": ""}}
    spec: dict[str, Any] = {"nodeSelector": selector, "paused": paused}
    group = "machineconfiguration.openshift.io/v1"
    return manifest(group, "MachineConfigPool", name, metadata={"labels": labels or {}}, spec=spec)


def api_server(status: str, message: str) -> Object:
    said = {"type": "Upgradeable", "status": status, "message": message, "reason": "R"}
    kind, name = "ClusterOperator", "kube-apiserver"
    return manifest("config.openshift.io/v1", kind, name, status={"conditions": [said]})


def version(state: str = "Completed", upgradeable: str = "True") -> Object:
    status = {
        "desired": {"version": "4.15.3"},
        "history": [{"state": state, "version": "4.15.3"}],
        "conditions": [{"type": "Upgradeable", "status": upgradeable, "message": TOO_OLD}],
    }
    spec = {"channel": "eus-4.16"}
    return manifest("config.openshift.io/v1", "ClusterVersion", "version", spec=spec, status=status)


MASTERS = pool("master", "master", paused=False)
WORKERS = pool("worker", "worker", paused=True)
OLD = (host("m", "master", "v1.28.4"), host("w", "worker", "v1.27.9"))
SAME = (host("m", "master", "v1.28.4"), host("w", "worker", "v1.28.4"))


def rehearsed(*objects: Object) -> Rehearsal:
    return rehearse(Snapshot([MASTERS, kubevirt(), *objects], ("*",)), Options())


def test_a_paused_pool_with_supported_kubelets_holds_nothing() -> None:
    result = rehearsed(*OLD, WORKERS, version(), api_server("True", SUPPORTED))

    assert result.possible is True
    assert [wave.nodes for wave in result.waves] == [("m",)]
    (note,) = result.paused
    assert "worker is paused, which does not hold the control plane: w runs kubelet v1.27" in note
    assert "Leave it paused until the control plane has 4.16" in note
    assert not command_of(note)


def test_a_paused_pool_with_old_kubelets_is_the_cause_of_the_refusal() -> None:
    release, operator = version(upgradeable="False"), api_server("False", TOO_OLD)
    result = rehearsed(*OLD, WORKERS, release, operator)
    cluster = Snapshot([*OLD, MASTERS, WORKERS, release, operator], ("*",))
    refused = release_refusals.of_version(release, cluster)

    assert result.possible is False
    (stop,) = result.stops
    assert "w runs kubelet v1.27, for which another minor release is refused" in stop.reason
    assert refused is not None
    assert "(R): w runs kubelet v1.27, as MachineConfigPool worker is paused" in refused.by[0].brief
    assert command_of(refused.by[0].remedy).startswith("kubectl patch machineconfigpool worker")


@pytest.mark.parametrize(
    ("nodes", "workers", "operator"),
    [
        (SAME, WORKERS, api_server("True", "All is well")),
        (OLD, WORKERS, api_server("True", "All is well")),
        (OLD, WORKERS, api_server("Unknown", SUPPORTED)),
        (
            OLD,
            pool(
                "worker",
                "worker",
                paused=True,
                labels={"operator.machineconfiguration.openshift.io/required-for-upgrade": ""},
            ),
            api_server("True", SUPPORTED),
        ),
    ],
    ids=["same kubelets", "nothing says it", "not determined", "required for the update"],
)
def test_a_paused_pool_that_stops_its_nodes(
    nodes: tuple[Object, ...], workers: Object, operator: Object
) -> None:
    result = rehearsed(*nodes, workers, version(), operator)

    assert result.paused == ()
    assert [str(stop.problem) for stop in result.stops] == ["PoolPaused:worker"]


def test_a_pool_that_is_paused_while_the_control_plane_is_updated() -> None:
    result = rehearsed(*SAME, WORKERS, version("Partial"), api_server("True", "All is well"))

    assert result.possible is not False
    assert len(result.paused) == 1


def test_a_refusal_for_another_reason_is_not_that_of_a_paused_pool() -> None:
    operator = api_server("False", "an alpha feature is on")
    cluster = Snapshot([*OLD, MASTERS, WORKERS, operator], ("*",))

    assert paused_pools.refused_for(operator, cluster) == ()
    assert "which another" not in paused_pools.effect(WORKERS, cluster)


def test_pools_that_are_not_paused_are_not_named() -> None:
    cluster = Snapshot([*OLD, MASTERS, api_server("True", SUPPORTED)], ("*",))

    assert paused_pools.paused(cluster) == ()


def test_a_kubelet_is_old_as_no_pool_selects_its_node():
    lost = host("w", "desktops", "v1.27.9")
    key = "machineconfiguration.openshift.io/currentConfig"
    lost.data["metadata"]["annotations"] = {key: "rendered-worker-0a1b"}
    worker = pool("worker", "worker", paused=False)
    objects = [lost, host("m", "master", "v1.28.1"), MASTERS, worker, api_server("False", TOO_OLD)]
    cluster = Snapshot([*objects, version(upgradeable="False"), kubevirt()], complete=["*"])
    found = release_refusals.of_operator(objects[-1], cluster)

    assert "no MachineConfigPool selects node w (master selects" in found.reason
    assert command_of(found.remedy) == (
        "kubectl label node w node-role.kubernetes.io/worker= --overwrite"
    )
    result = rehearse(cluster, Options())
    assert [str(stop.problem) for stop in result.stops] == ["PoolMissing:w"]
    said = text.text(result)
    assert said.startswith("No: the upgrade leaves out 1 node.\n")
    assert said.count("no MachineConfigPool selects node w") == 1
    assert "kube-apiserver is not Upgradeable (R): as of w above: KubeletMinorVersion" in said
    assert "\n  to do: the same as at w\n" in said
