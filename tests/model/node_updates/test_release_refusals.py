"""What refuses another minor release of OpenShift,
as the ClusterVersion and its operators say it.
"""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.healthy.parts import Object as Raw
from tests.healthy.parts import ago, obj
from tests.incidents_platform.cluster_updates import KEY, condition, operator, version
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.operators.release_refusals import (
    RefusedReleases,
    of_operator,
    of_version,
)

REFUSES = "should not be upgraded between minor or major versions"
OVERRIDES = (
    "Disabling ownership via cluster version overrides prevents upgrades. Please remove overrides."
)


def refused(own: Raw, *more: Raw) -> RefusedReleases | None:
    return of_version(Object(own), Snapshot(map(Object, (own, *more)), ["*"]))


def saying(words: str, reason: str = "MultipleReasons") -> Raw:
    return version("4.20.6", None, condition("Upgradeable", False, reason, words))


DNS, ETCD = (
    operator(name, "4.20.6", Upgradeable=f"{name} waits\nfor:\n* a thing")
    for name in ("dns", "etcd")
)
OF_BOTH = (
    f"Multiple cluster operators {REFUSES}:\n* Cluster operator dns {REFUSES}: X: dns waits\nfor:\n"
    f"* a thing\n* Cluster operator etcd {REFUSES}: X: etcd waits\nfor:\n* a thing"
)
SAID: dict[str, tuple[str, str, list[Raw], list[str]]] = {
    "one operator": (
        f"Cluster operator dns {REFUSES}: dns waits\nfor:\n* a thing",
        "X",
        [DNS],
        ["dns"],
    ),
    "two operators": (OF_BOTH, "MultipleReasons", [ETCD, DNS], ["dns", "etcd"]),
    "an operator and overrides": (
        f"Cluster {REFUSES} for multiple reasons: X,Y\n* {OF_BOTH}\n* {OVERRIDES}",
        "MultipleReasons",
        [DNS, ETCD],
        ["dns", "etcd", "version"],
    ),
    "a newer release names no operator": (
        f"Cluster {REFUSES} for multiple reasons:\n* dns waits\nfor:\n* a thing\n* {OVERRIDES}",
        "MultipleReasons",
        [DNS],
        ["dns", "version"],
    ),
    "operators cannot be read": (f"Cluster operator dns {REFUSES}: wait", "X", [], ["version"]),
    "overrides": (OVERRIDES, "ClusterVersionOverridesSet", [], ["version"]),
}


@pytest.mark.parametrize("name", SAID)
def test_by(name: str) -> None:
    words, reason, operators, by = SAID[name]
    found = refused(saying(words, reason), *operators)
    assert found is not None
    assert [each.name for each in found.by] == by
    remedies = [each.remedy for each in found.by if each.name == "version"]
    assert all(
        remedy.startswith("Remove spec.overrides") for remedy in remedies if OVERRIDES in words
    )


def test_an_acknowledgement_does_not_start_what_was_not_ordered() -> None:
    found = refused(saying(f"{KEY}: an API is removed", "AdminAckRequired"))
    assert found is not None
    assert found.by[0].remedy.startswith(
        "Check what the message asks for. Only then acknowledge it: kubectl patch"
    )


def test_an_operator_that_is_too_old_is_named_with_its_subscription() -> None:
    words = (
        "ClusterServiceVersions blocking: maximum supported OCP version for s/odf.v4.20.1 is 4.20"
    )
    spec = {"channel": "stable-4.20", "name": "odf"}
    order = obj("Subscription", "operators.coreos.com/v1alpha1", "odf", "s", spec=spec)
    order["status"] = {"installedCSV": "odf.v4.20.1"}
    found = refused(
        saying("x"), operator("operator-lifecycle-manager", "4.20.6", Upgradeable=words), order
    )
    assert found is not None
    assert "It is refused until odf.v4.20.1 is replaced" in found.by[0].remedy
    assert "The ordered update" not in found.by[0].remedy


@pytest.mark.parametrize(
    ("channel", "offered", "wanted", "texts"),
    [
        ("stable-4.20", [], False, ("releases of 4.20", "another minor release")),
        ("stable-4.20", ["4.20.7", "4.20.10"], False, ("4.20.7, 4.20.10", "another minor release")),
        ("stable-4.21", [], True, ("releases of 4.20", "another minor release")),
        ("stable-5.0", [], True, ("releases of 4.20", "another minor release")),
        ("stable-4", ["4.20.7", "4.21.0", "5.0.1"], True, ("4.20.7", "4.21.0, 5.0.1")),
        (None, [], False, ("releases of 4.20", "another minor release")),
        (f"stable-{'9' * 5_000}.1", [], True, ("releases of 4.20", "another minor release")),
    ],
)
def test_targets(
    channel: str | None, offered: list[str], wanted: bool, texts: tuple[str, str]
) -> None:
    own = saying("wait")
    own["spec"]["channel"] = channel
    own["status"]["availableUpdates"] = [{"version": each} for each in offered[:2]]
    own["status"]["conditionalUpdates"] = [{"release": {"version": each}} for each in offered[2:]]
    found = refused(own)
    assert found is not None
    assert (found.wanted, (found.within, found.targets)) == (wanted, texts)


def test_it_accepts_others() -> None:
    assert refused(version("4.20.6", None, condition("Upgradeable", True))) is None
    assert refused(version("4.20.6", None)) is None
    assert refused(saying("see Progressing", "UpdateInProgress")) is None


def pod(name: str, node: str, phase: str = "Running", app: str = "p", claim: str = "c") -> Raw:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    found = obj(
        "Pod",
        "v1",
        name,
        "mon",
        spec={"nodeName": node, "volumes": volumes},
        status={"phase": phase},
    )
    found["metadata"]["labels"] = {"app": app}
    return found


MARK = "openshift.io/cluster-monitoring-drop-pvc"
PODS: dict[str, tuple[list[Raw], str, str]] = {
    "on one node": (
        [pod("p-0", "a"), pod("p-1", "a")],
        "pods p-0, p-1 of mon all run on a",
        f"mon {MARK}=yes",
    ),
    "without a claim": (
        [pod("p-0", "a", claim=""), pod("p-1", "a", claim="")],
        "all run on a",
        "kubectl describe",
    ),
    "on two nodes": ([pod("p-0", "a"), pod("p-1", "b")], "", "kubectl describe"),
    "one of them": ([pod("p-0", "a"), pod("p-1", "a", phase="Pending")], "", "kubectl describe"),
    "others": ([pod("p-0", "a"), pod("p-1", "a", app="q")], "", "kubectl describe"),
}


@pytest.mark.parametrize("name", PODS)
def test_pods_on_one_node(name: str) -> None:
    pods, words, command = PODS[name]
    said = (
        'Highly-available workload in namespace mon, with label map["app":"p"] has a single point '
        f"of failure: {MARK}"
    )
    found = refused(saying("x"), operator("monitoring", "4.20.6", Upgradeable=said), *pods)
    assert found is not None
    assert words in found.by[0].reason
    assert ("all run on" in found.by[0].reason) is bool(words)
    assert command in found.by[0].remedy


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("one or more VMs are on hardware version vmx-13", "kubectl logs deployment/vsphere-"),
        ("connected vcenter is on 6.7.0 version", "kubectl describe clusteroperator storage"),
    ],
)
def test_nodes_on_old_virtual_hardware(said: str, command: str) -> None:
    held = operator("storage", "4.12.30", Upgradeable=f"Marking cluster un-upgradeable: {said}")
    found = refused(saying("x"), held)
    assert found is not None
    assert command in found.by[0].remedy
    assert ("hardware version 15 or later" in found.by[0].remedy) is ("vmx" in said)


CGROUP = "Please update the `CgroupMode` in the `nodes.config.openshift.io` object to 'v2'. Once"
PATCH = 'kubectl patch nodes.config.openshift.io cluster --type=merge -p \'{"spec":{"cgroupMode":'


REBOOTS = "for which each node is drained and rebooted, and which cannot be changed back after the"
DESCRIBED = "Resolve what ClusterOperator machine-config asks for: kubectl describe clusteroperator"


@pytest.mark.parametrize(
    ("said", "present", "remedy"),
    [
        (CGROUP, "v1", f"to v2 (now v1), {REBOOTS} update: {PATCH}"),
        (CGROUP, None, f"to v2, {REBOOTS} update: {PATCH}"),
        (CGROUP, "v2", DESCRIBED),
        ("Please update the object to 'v2'", "v1", DESCRIBED),
        (CGROUP.replace("'v2'", "something other than v1"), "v1", DESCRIBED),
        (CGROUP.replace("'v2'", "'something'"), "v1", DESCRIBED),
        (CGROUP.replace("'v2'", "v2"), "v1", DESCRIBED),
        (CGROUP.replace("nodes.", "oauths."), "v1", DESCRIBED),
        (
            "Change the networkType in the networks.config.openshift.io object to 'OVNKubernetes'",
            "v1",
            DESCRIBED,
        ),
    ],
)
def test_a_field_that_the_operator_asks_for(said: str, present: str | None, remedy: str) -> None:
    own = manifest("config.openshift.io/v1", "Node", "cluster", spec={"cgroupMode": present})
    held = operator("machine-config", "4.18.22", Upgradeable=said)
    found = refused(saying("x"), held, *((own.data,) if present else ()))
    assert found is not None
    assert remedy in found.by[0].remedy


@pytest.mark.parametrize(("updating", "says"), [("True", True), ("False", False)])
def test_pools_that_are_updated_refuse_nothing_of_their_own(updating, says):
    words = "One or more machine config pools are updating, please see `oc get mcp`"
    said = {"type": "Upgradeable", "status": "False", "reason": "PoolUpdating", "message": words}
    kind, name, own = "ClusterOperator", "machine-config", {"conditions": [said]}
    busy = manifest("config.openshift.io/v1", kind, name, status=own)
    state = {"conditions": [{"type": "Updating", "status": updating}]}
    group = "machineconfiguration.openshift.io/v1"
    pool = manifest(group, "MachineConfigPool", "desktops", status=state)
    found = of_operator(busy, Snapshot([busy, pool], ["*"]))

    assert ("it ends once each node of MachineConfigPool desktops has" in found.remedy) is says
    assert found.remedy.startswith("Resolve what") is not says


CCM = "cloud-controller-manager"


@pytest.mark.parametrize(
    ("present", "statuses", "offered", "says", "remedy"),
    [
        ("4.12.0-0.okd-2023", {"Upgradeable": ""}, (), "fixed in 4.12.18", "--force"),
        (
            "4.12.9",
            {"Upgradeable": ""},
            ("4.13.2", "4.12.30", "4.12.9", "4.12.17"),  # the newest first
            "names no cause",
            "to 4.12.30 first",
        ),
        ("4.16.1", {"Upgradeable": ""}, (), "may have left the condition", "--force"),
        ("4.12.9", {"Upgradeable": "wait"}, (), "wait", "Resolve what ClusterOperator"),
        ("4.12.9", {"Upgradeable": "", "Degraded": "x"}, (), "", "Resolve what ClusterOperator"),
    ],
)
def test_a_refusal_without_a_cause(present, statuses, offered, says, remedy):
    own = version(present, "4.13.2", condition("Upgradeable", False, "AsExpected", "x"))
    own["status"]["availableUpdates"] = [{"version": each} for each in offered]
    refusing = operator(CCM, present, **statuses)
    for each in refusing["status"]["conditions"]:
        each["reason"] = "AsExpected"
    known = Snapshot(map(Object, (own, refusing)), ["*"], time=ago())
    found = of_operator(Object(refusing), known)
    assert says in found.reason
    assert remedy in found.remedy
    assert ("names no cause" in found.reason) is remedy.startswith(("--force", "to "))


def test_a_forced_update_is_not_named_where_no_releases_could_be_retrieved():
    own = version("4.12.9", "4.13.2", condition("RetrievedUpdates", False, "NoChannel", "x"))
    refusing = operator(CCM, "4.12.9", Upgradeable="")
    refusing["status"]["conditions"][-1]["reason"] = "AsExpected"
    known = Snapshot(map(Object, (own, refusing)), ["*"], time=ago())
    remedy = of_operator(Object(refusing), known).remedy
    assert "none is known here (RetrievedUpdates is False: NoChannel)" in remedy
    assert "--force" not in remedy


def test_a_forced_update_is_not_named_beside_another_refusal():
    own = version("4.12.9", "4.13.2", condition("Upgradeable", False, "AsExpected", "x"))
    refusing, other = operator(CCM, "4.12.9", Upgradeable=""), operator("dns", "4", Degraded="x")
    refusing["status"]["conditions"][-1]["reason"] = "AsExpected"
    known = Snapshot(map(Object, (own, refusing, other)), ["*"], time=ago())
    assert "See first what dns reports" in of_operator(Object(refusing), known).remedy


PART = {"kind": "Deployment", "group": "apps", "namespace": "s", "name": "samples"}


@pytest.mark.parametrize(
    ("present", "unmanaged", "every"),
    [
        ("4.12.3", True, True),
        ("4.21.6", True, True),
        ("4.22.0", True, False),
        ("4.20.6", False, False),
    ],
)
def test_overrides_hold_each_release_up_to_4_21(present: str, unmanaged: bool, every: bool) -> None:
    own = version(present, None, condition("Upgradeable", False, "X", OVERRIDES))
    minor = present.rpartition(".")[0]
    own["status"]["availableUpdates"] = [{"version": f"{minor}.9"}, {"version": "5.0.1"}]
    own["spec"]["overrides"] = [{**PART, "unmanaged": unmanaged}]
    found = refused(own)
    assert found is not None
    assert found.every is every
    assert found.within == ("the present release" if every else f"{minor}.9")
    assert found.targets == (f"{minor}.9, 5.0.1" if every else "5.0.1")
    assert ("Deployment s/samples" in found.by[0].remedy) is unmanaged
