"""Pods that are not VMs: what a drain needs for them, and what refuses to evict them."""

import pytest

from tests.advice import risky
from tests.builders import manifest, node, vmi
from tests.for_each import for_each
from virt_admit.forecasts.drain import launcher_pods, pod_evictions
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

WEB = {"app": "web"}
HEARD = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T12:00:00Z"}
HERE = manifest("v1", "Node", "a", status={"conditions": [HEARD]})


def pod(
    name="web-1",
    owner="ReplicaSet",
    ready="True",
    phase="Running",
    labels=None,
    metadata=None,
    of="web",
    **spec,
):
    owners = [{"kind": owner, "name": of, "controller": True}] if owner else []
    return manifest(
        "v1",
        "Pod",
        name,
        "shop",
        metadata={"labels": WEB if labels is None else labels, "ownerReferences": owners}
        | (metadata or {}),
        spec={"nodeName": "a", **spec},
        status={"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    )


def budget(
    name="web", *, allowed=None, healthy=1, desired=1, expected=None, generation=None, **spec
):
    status = {"currentHealthy": healthy, "desiredHealthy": desired}
    status |= {} if allowed is None else {"disruptionsAllowed": allowed}
    status |= {} if expected is None else {"expectedPods": expected}
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        name,
        "shop",
        spec={"selector": {"matchLabels": WEB}} | spec,
        status=status,
    )


def of_node(*objects):
    return pod_evictions.of_node(Snapshot([HERE, *objects], complete=["*"]), "a")


@for_each(
    "subject, own, now",
    [
        (pod(), budget(maxUnavailable=0), False),
        (pod(), budget(maxUnavailable="0%"), False),
        (pod(), budget(minAvailable="100%"), False),
        (pod(), budget(minAvailable=3, expected=3, allowed=0), False),
        (pod(), budget(minAvailable=1), False),  # the only pod that it selects
        (pod(), budget(minAvailable="90%", expected=3, desired=3, healthy=3, allowed=0), False),
        (pod(), budget(minAvailable="50%", expected=3, desired=2, healthy=2, allowed=0), True),
        (pod(), budget(minAvailable=1, expected=2, allowed=0), True),
        # without a status nothing is allowed yet
        (pod(), budget(minAvailable=1, expected=2), True),
        (
            pod(ready="False"),
            budget(minAvailable=2, expected=3, allowed=0, healthy=1, desired=2),
            True,
        ),
    ],
)
def test_a_budget_that_refuses(subject, own, now):
    (blocker,) = of_node(subject, own).blockers

    assert (blocker.kind, blocker.name, blocker.now) == ("PodDisruptionBudget", "web", now)
    assert blocker.reason
    assert blocker.remedy
    assert not risky(f"{blocker.subject}: {blocker.reason}: {blocker.remedy}")


@for_each(
    "subject, own",
    [
        (pod(), budget(minAvailable=1, expected=2, allowed=1)),
        (pod(labels={"app": "db"}), budget(maxUnavailable=0)),
        (pod(), budget(selector=None, maxUnavailable=0)),
        (pod(phase="Pending", ready="False"), budget(maxUnavailable=0)),
        (pod(phase="Succeeded", ready="False"), budget(maxUnavailable=0)),
        (pod(ready="False"), budget(maxUnavailable=0, healthy=2, desired=2)),
        (
            pod(ready="False"),
            budget(maxUnavailable=0, healthy=0, unhealthyPodEvictionPolicy="AlwaysAllow"),
        ),
        (pod(owner="DaemonSet"), budget(maxUnavailable=0)),
        (pod(metadata={"annotations": {evicted_pods.MIRROR: "x"}}), budget(maxUnavailable=0)),
        (pod(labels=WEB | {"kubevirt.io": "virt-launcher"}), budget(maxUnavailable=0)),
    ],
)
def test_a_budget_that_does_not_refuse(subject, own):
    assert of_node(subject, own).blockers == ()


def test_a_budget_waits_for_pods_that_do_not_become_healthy_by_themselves():
    own = budget(minAvailable=2, expected=3, allowed=0, healthy=1, desired=2)
    crashing = pod("web-2", ready="False", nodeName="b")
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}
    crashing.data["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": waiting}}]
    (found,) = of_node(pod(), own, crashing).blockers
    assert found.reason.endswith(
        "web-1 cannot be evicted: web-2 cannot start (CrashLoopBackOff: back-off 5m0s)"
    )
    assert "do not become healthy by themselves" in found.remedy
    (found,) = of_node(pod(), own, pod("web-2", ready="False", nodeName="b")).blockers
    assert "Wait until" in found.remedy


def test_two_budgets_for_one_pod_always_refuse():
    (blocker,) = of_node(pod(), budget(allowed=1), budget("more", allowed=1)).blockers
    assert (blocker.kind, blocker.name, blocker.now) == ("PodDisruptionBudget", "more", False)
    assert blocker.remedy.endswith(": kubectl describe pdb -n shop")


def test_causes_of_different_pods_at_one_budget_are_all_named():
    two, own = budget(maxUnavailable=0), budget("more", selector={"matchLabels": {"tier": "db"}})
    third = budget("other", selector={"matchLabels": {"tier": "cache"}})
    pods = [
        pod(),
        pod("web-2", labels=WEB | {"tier": "db"}),
        pod("web-3", labels=WEB | {"tier": "cache"}),
    ]
    found = sorted(each.reason for each in of_node(*pods, two, own, third).blockers)
    assert len(found) == 3
    assert any("so no pod can ever be evicted" in each for each in found)


def test_a_budget_is_named_once_however_many_pods_it_protects():
    assert len(of_node(pod(), pod("web-2"), budget(maxUnavailable=0)).blockers) == 1


@pytest.mark.parametrize(
    ("deleted", "finalizers", "stuck"),
    [
        ("2026-01-01T11:59:00Z", [], False),
        ("2026-01-01T11:00:00Z", [], True),
        ("2026-01-01T11:00:00Z", ["example.com/hold"], True),
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_pods_that_do_not_end(deleted, finalizers, stuck, phase):
    found = of_node(
        pod(phase=phase, metadata={"deletionTimestamp": deleted, "finalizers": finalizers})
    ).blockers

    assert [item.now for item in found] == [True] * stuck
    assert all("example.com/hold" in item.reason for item in found if finalizers)


def test_pods_that_have_ended_need_no_flag_and_those_of_daemons_are_left_alone():
    late = {"deletionTimestamp": "2026-01-01T11:00:00Z"}
    assert of_node(pod(phase="Failed", owner=None, metadata=late)).needs == ()
    assert of_node(pod(phase="Failed", owner="DaemonSet", metadata=late)).blockers == ()


def test_on_a_node_that_is_not_ready_no_pod_ends():
    dead = node("a", ready="Unknown")
    ending = {"deletionTimestamp": "2026-01-01T11:59:59Z"}
    pods = pod(metadata=ending), pod("b", metadata=ending | {"finalizers": ["example.com/hold"]})
    found = pod_evictions.of_node(Snapshot([dead, *pods], complete=["*"]), "a").blockers
    assert sorted((item.kind, item.name) for item in found) == [
        ("Node", "a"),
        ("Pod", "b"),
    ]  # the node once for all pods
    assert any(
        "does not report, so evicted pods (1 already) are not seen to end" in item.reason
        for item in found
    )


LAUNCHER = {"labels": {"kubevirt.io": "virt-launcher"}, "annotations": {launcher_pods.DOMAIN: "db"}}


def launcher(phase="Running", **metadata):
    owner = "VirtualMachineInstance"
    return pod(
        "virt-launcher-db",
        owner=owner,
        of="db",
        phase=phase,
        labels={},
        metadata=LAUNCHER | metadata,
    )


def test_nothing_ends_on_a_node_whose_kubelet_is_silent():
    silent, failing = node("a", ready="Unknown"), node("a", ready="False")

    (blocker,) = pod_evictions.of_node(Snapshot([silent, pod()], complete=["*"]), "a").blockers
    assert (blocker.subject, blocker.now) == ("Node a", True)
    assert pod_evictions.of_node(Snapshot([silent], complete=["*"]), "a", has_vms=True).blockers
    assert not pod_evictions.of_node(Snapshot([silent], complete=["*"]), "a").blockers
    assert not pod_evictions.of_node(Snapshot([failing, pod()], complete=["*"]), "a").blockers


def test_a_launcher_pod_that_does_not_end():
    """The most common complaint about drains: the VM was stopped long ago,
    and its pod is still there.
    """
    (blocker,) = of_node(launcher(deletionTimestamp="2026-01-01T11:00:00Z"), vmi()).blockers

    assert (blocker.subject, blocker.now) == ("Pod shop/virt-launcher-db", True)
    assert "should have ended" in blocker.reason


def test_a_launcher_pod_without_its_vmi_cannot_be_evicted():
    (blocker,) = of_node(launcher(), budget(maxUnavailable=0)).blockers

    assert (blocker.kind, blocker.name, blocker.now) == ("Pod", "virt-launcher-db", False)
    assert "VMI db does not exist" in blocker.reason
    assert "virt-controller" in blocker.remedy
    assert of_node(launcher(creationTimestamp="2026-01-01T11:45:00Z")).blockers


@pytest.mark.parametrize(
    "objects",
    [
        [launcher(), vmi()],
        # VMIs may have been listed before it was started
        [launcher(creationTimestamp="2026-01-01T11:55:00Z")],
        [launcher(phase="Succeeded")],
        [launcher(phase="Failed")],
        [launcher(annotations={})],  # KubeVirt's webhook lets it go
        [launcher(labels={"kubevirt.io": "hotplug-disk"})],  # this one too
        [launcher(deletionTimestamp="2026-01-01T11:59:30Z")],  # it ends within its grace period
    ],
)
def test_launcher_pods_that_do_not_block(objects):
    assert of_node(*objects).blockers == ()


def test_without_vmis_an_orphan_is_unknown():
    readable = Snapshot([HERE, launcher()], complete=["nodes", "pods", "poddisruptionbudgets"])
    assert pod_evictions.of_node(readable, "a").blockers == ()


def test_flags():
    scratch = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    launcher = pod(
        "virt-launcher",
        labels={"kubevirt.io": "virt-launcher"},
        owner="VirtualMachineInstance",
        **scratch,
    )
    plain = of_node(launcher).needs
    found = of_node(
        pod("bare", owner=""),
        pod("cache", **scratch),
        pod("log", owner="DaemonSet", **scratch),
        launcher,
    )

    assert [(need.flag, need.pods) for need in found.needs] == [
        ("--force", ("shop/bare",)),
        ("--delete-emptydir-data", ("shop/cache", "shop/virt-launcher")),
    ]
    assert plain[0].pods == ("shop/virt-launcher",)
    part = pod("virt-api", labels={"kubevirt.io": "virt-api"}, **scratch)
    assert of_node(part).needs[0].cost == "No data is lost: pods of KubeVirt keep no data there."
    assert "keep no data" in plain[0].cost
    assert found.needs[1].cost == (
        "Data in emptyDir volumes of shop/cache is lost; pods of KubeVirt keep no data there."
    )


def test_guard_pods_are_made_again():
    guard = pod("etcd-guard-m1", owner="", labels={"app": "guard"})
    (need,) = of_node(guard).needs
    assert need.cost.startswith("Operators of OpenShift make their guard pods again")
    (both,) = of_node(guard, pod("bare", owner="")).needs
    assert both.pods == ("shop/bare", "shop/etcd-guard-m1")
    assert both.cost == "Pods without a controller (shop/bare) are deleted and do not come back."


def test_pods_of_a_catalog_source_are_made_again():
    owner = {"kind": "CatalogSource", "name": "redhat-operators"}
    catalog = pod("redhat-operators-x", owner="", metadata={"ownerReferences": [owner]})
    (need,) = of_node(catalog).needs
    assert need.cost == "OLM makes the pods of its CatalogSources again."
    (both,) = of_node(catalog, pod("bare", owner="")).needs
    assert both.cost == "Pods without a controller (shop/bare) are deleted and do not come back."


NOT_LISTED = "what becomes of pod shop/virt-launcher-db: its VMI db was not listed"
NO_NODE = "what becomes of VM shop/db: its VMI has no node yet, its pod virt-launcher-db is on a"
ELSEWHERE = "what becomes of VM shop/db: its VMI is on b, its pod virt-launcher-db is on a"


def guest(**status):
    return Object(vmi().data | {"status": status})


@for_each(
    "objects, says",
    [
        ([launcher(creationTimestamp="2026-01-01T11:55:00Z")], NOT_LISTED),
        ([launcher(), guest(phase="Running")], NO_NODE),
        ([launcher(), guest(phase="Running", nodeName="b")], ELSEWHERE),
        ([launcher(), guest(phase="Running", nodeName="a")], ""),
        ([launcher(), guest(phase="Failed", nodeName="b")], ""),
        (
            [launcher(), guest(phase="Running", nodeName="b", migrationState={"targetNode": "a"})],
            "",
        ),
        (
            [launcher(), guest(phase="Running", nodeName="b", migrationState={"sourceNode": "a"})],
            "",
        ),
        (
            [
                launcher(labels=LAUNCHER["labels"] | {"kubevirt.io/migrationJobUID": "1"}),
                guest(nodeName="b"),
            ],
            "",
        ),
        ([launcher(phase="Succeeded")], ""),
        ([launcher(labels={"kubevirt.io": "hotplug-disk"})], ""),
    ],
)
def test_a_guest_that_is_on_no_list_is_a_doubt(objects, says):
    """VMIs and pods are listed one after the other."""
    found = of_node(*objects)
    assert found.unseen == ((says,) if says else ())


@for_each(
    "strategy, phase, says",
    [
        ("LiveMigrateIfPossible", "Pending", ""),
        ("None", "Pending", ""),
        ("LiveMigrate", "Pending", NO_NODE),
        ("None", "Running", NO_NODE),
    ],
)
def test_the_pod_of_a_start_leaves_before_its_guest_runs(strategy, phase, says):
    starts = guest(phase="Scheduling")
    starts.data["spec"] = {**starts.data.get("spec", {}), "evictionStrategy": strategy}
    found = of_node(launcher(phase=phase), starts)
    assert found.blockers == ()
    assert found.unseen == ((says,) if says else ())
