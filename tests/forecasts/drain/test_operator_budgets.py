"""Budgets that an operator writes: healthy clusters drain,
and what really blocks is named with the operator's object.
"""

import pytest

from tests.advice import risky
from tests.builders import manifest, webhook_configuration
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import (
    LONGHORN,
    budget,
    node,
    pod,
    policy,
    replica,
    volume,
)
from tests.rules.test_rules import ALL, context_of
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.drain import html
from virt_admit.reports.drain import text as drain_text
from virt_admit.reports.drain.report import report
from virt_admit.reports.values import as_data

TWO = ("a", "b")
COPIES = [replica("v1", on) for on in TWO]
"""A volume with a healthy replica on two nodes."""


def drained(objects, on="a", unreadable=(), time=None):
    cluster = Snapshot(objects, complete=["*"], unreadable=unreadable, time=time)
    result = plan(cluster, on)
    (found,) = as_data(report(result))["nodes"]
    for each in found["blockers"]:
        assert not risky(f"{each['kind']} {each['name']}: {each['reason']}: {each['remedy']}")
    return found


def blocker(objects, on="a"):
    found = drained(objects, on)
    (only,) = found["blockers"]
    assert (found["drainable"], found["waits"]) == (False, [])
    return only


def wait(objects, on="a"):
    found = drained(objects, on)
    (only,) = found["waits"]
    assert (found["drainable"], found["blockers"], found["unseen"]) == (True, [], [])
    return only


def unknown(objects, on="a", unreadable=()):
    found = drained(objects, on, unreadable)
    assert (found["drainable"], found["blockers"], found["waits"]) == (None, [], [])
    (only,) = found["unseen"]
    return only


@pytest.mark.parametrize(
    "objects",
    [world.longhorn(*COPIES), world.longhorn(), world.rook(), world.openshift()],
    ids=["Longhorn", "Longhorn without volumes", "Rook", "OpenShift with ODF"],
)
def test_a_healthy_cluster_is_not_accused(objects):
    for on in "abc":
        found = drained(objects, on)
        assert (found["drainable"], found["blockers"], found["unseen"]) == (True, [], [])
    cluster = Snapshot(objects, complete=["*"])
    rules = [rule for rule in ALL if kinds.PDB in rule.kinds]
    assert {rule.id for rule in rules} >= {"pod-budget-blocks-drain", "pdb-blocks-vm-drain"}
    budgets = cluster.known(kinds.PDB)
    assert budgets
    for rule in rules:
        for each in budgets:
            assert not list(rule.check(each, context_of(rule, {}, each, None, cluster))), (
                rule.id,
                each.full_name,
            )


# --- Longhorn -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        ("a", "once the VMs and pods with its volumes have left node a"),
        ("b", "after the node is cordoned, as no volume is attached to node a"),
    ],
    ids=["here", "elsewhere"],
)
def test_longhorn_waits_for_the_vms_or_the_cordon(on, reason):
    assert wait(world.longhorn(*COPIES, world.volume("v1", 3, on))) == {
        "kind": "PodDisruptionBudget",
        "namespace": LONGHORN,
        "name": "instance-manager-a",
        "reason": f"Longhorn removes it {reason}",
        "since": None,
        "until": None,
    }


def test_a_wait_is_in_text_and_html():
    result = plan(Snapshot(world.longhorn(*COPIES), complete=["*"]), "a")
    assert (
        f"waits for: PodDisruptionBudget {LONGHORN}/instance-manager-a: Longhorn removes"
        in drain_text.text(result)
    )
    assert any(
        "instance-manager-a" in line for _, lines in html.page(result, None).notes for line in lines
    )


def test_the_last_copy_of_a_volume_blocks():
    found = blocker(
        world.longhorn(
            replica("v1", "a"), volume("v1", 1), policy("block-if-contains-last-replica")
        )
    )
    assert found["now"] is False
    assert found["reason"] == "the only healthy copy of Longhorn volume v1 is on node a"
    assert "Add a replica" in found["remedy"]


def test_the_only_node_has_no_place_for_a_further_copy():
    copy, setting = replica("v1", "a"), policy("block-if-contains-last-replica")
    found = drained(world.longhorn(copy, volume("v1", 1), setting, nodes=("a",)))
    remedies = [each["remedy"] for each in found["blockers"] if "instance-manager" in each["name"]]
    assert len(remedies) == 1
    assert remedies[0].startswith("Stop the VMs that use them before maintenance")


@pytest.mark.parametrize(
    "other",
    [
        replica("v1", "b", failed=True),
        replica("v1", "b", healthy=False),
        replica("v2", "b"),
        replica("v1", "x"),
    ],
    ids=["failed", "never healthy", "of another volume", "on a node without an instance manager"],
)
def test_a_copy_that_does_not_count(other):
    assert blocker(world.longhorn(replica("v1", "a"), other, volume("v1", 1)))["now"] is False


def test_the_last_copy_of_a_volume_that_is_rebuilt_blocks_now():
    assert blocker(world.longhorn(replica("v1", "a"), volume("v1", 2)))["now"] is True


def test_a_copy_on_a_cordoned_node_does_not_count():
    objects = [
        each
        for each in world.longhorn(*COPIES, volume("v1", 2))
        if (each.kind, each.name) != ("Node", "b")
    ]
    found = blocker([*objects, node("b", cordoned=True)])
    assert found["now"] is True
    assert found["reason"] == (
        "the other healthy copies of Longhorn volume v1 are on nodes that are cordoned (b), which "
        "Longhorn does not count"
    )
    assert found["remedy"] == "Uncordon b: kubectl uncordon b"


def test_a_copy_on_a_node_in_maintenance_mode_comes_back_with_the_mode():
    objects = [
        each
        for each in world.longhorn(*COPIES, volume("v1", 2))
        if (each.kind, each.name) != ("Node", "b")
    ]
    kept = node("b", cordoned=True)
    kept.data["metadata"]["annotations"] = {"harvesterhci.io/drain-requested": "true"}
    found = blocker([*objects, kept])
    assert found["remedy"].startswith(
        "Unless that maintenance is still wanted, take its request off b"
    )
    assert found["remedy"].endswith("kubectl annotate node b harvesterhci.io/drain-requested-")


def used(replicas, *, on="", state="attached", **more):
    """Return volume v1 of claim shop/disk."""
    found = volume("v1", replicas, on=on)
    found.data["status"] |= {
        "state": state,
        "kubernetesStatus": {"namespace": "shop", "pvcName": "disk"} | more,
    }
    return found


def test_the_claim_of_the_last_copy_is_named():
    last = replica("v1", "a")
    assert (
        "v1 (claim shop/disk, which no VM uses now) is"
        in blocker(world.longhorn(last, used(1, state="detached")))["reason"]
    )
    before = {
        "workloadsStatus": [{"workloadName": "old", "workloadType": "VirtualMachineInstance"}]
    }
    found = blocker(world.longhorn(last, used(1, state="detached", **before)))
    assert "v1 (claim shop/disk of old, which does not run) is" in found["reason"]
    one = {"workloadName": "db", "workloadType": "StatefulSet", "podName": "db-1"}
    found = blocker(world.longhorn(last, used(1, state="detached", workloadsStatus=[one])))
    assert "v1 (claim shop/disk of pod db-1, which does not run) is" in found["reason"]
    assert (
        "v1 (claim shop/disk) is on"
        in blocker(world.longhorn(last, used(1, on="b"), policy("always")))["reason"]
    )


@pytest.mark.parametrize(
    "objects",
    [
        [replica("v1", "a"), policy("always-allow")],
        [replica("v1", "a", healthy=False)],  # never used: it holds no data
        [replica("v1", "a", state="stopped"), policy("allow-if-replica-is-stopped")],
        [*COPIES, policy("block-for-eviction-if-contains-last-replica")],
        [replica("v1", "b"), policy("block-for-eviction")],
    ],
    ids=["always-allow", "unused", "stopped", "another copy", "no replica"],
)
def test_the_policy_allows(objects):
    assert wait(world.longhorn(*objects))


@pytest.mark.parametrize(
    "value", ["block-for-eviction", "block-for-eviction-if-contains-last-replica"]
)
def test_replicas_that_move_first(value):
    assert "first moves 1 replica" in unknown(world.longhorn(replica("v1", "a"), policy(value)))


STOPPED_MAY_GO = policy("allow-if-replica-is-stopped")


def guest(claim, strategy="LiveMigrate"):
    status = {
        "phase": "Running",
        "nodeName": "a",
        "conditions": [{"type": "LiveMigratable", "status": "True"}],
    }
    spec = {
        "evictionStrategy": strategy,
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}],
    }
    return manifest(
        "kubevirt.io/v1", "VirtualMachineInstance", "web", "shop", spec=spec, status=status
    )


def test_a_running_replica_whose_volume_may_be_detached_by_the_drain():
    running = [replica("v1", "a"), STOPPED_MAY_GO]
    assert "stop only if no VM starts elsewhere" in unknown(
        world.longhorn(*running, volume("v1", 1, on="a"))
    )
    assert blocker(world.longhorn(*running, volume("v1", 1, on="b")))["now"] is False


def test_a_vm_that_migrates_keeps_the_last_copies_running():
    copies = [replica("v1", "a") for _ in range(3)]
    for number, each in enumerate(copies):
        each.data["metadata"]["name"] = f"v1-r-{number}"
    found = drained([*world.longhorn(*copies, STOPPED_MAY_GO, used(3, on="a")), guest("disk")])
    (budgeted,) = (each for each in found["blockers"] if each["kind"] == "PodDisruptionBudget")
    assert budgeted["reason"] == (
        "all 3 healthy copies of Longhorn volume v1 (claim shop/disk) are on node a, and VM "
        "shop/web needs them there after its migration, too"
    )
    assert "numberOfReplicas: 4 and replicaSoftAntiAffinity: disabled" in budgeted["remedy"]
    assert budgeted["now"] is False


@pytest.mark.parametrize("other", [guest("other"), guest("disk", "None")])
def test_a_vm_that_does_not_take_the_volume_along_keeps_no_copy_running(other):
    found = drained([*world.longhorn(replica("v1", "a"), STOPPED_MAY_GO, used(1, on="a")), other])
    assert [each for each in found["blockers"] if each["kind"] == "PodDisruptionBudget"] == []
    assert any("stop only if no VM starts elsewhere" in each for each in found["unseen"])


@pytest.mark.parametrize("plural", ["replicas", "settings"])
def test_longhorn_that_cannot_be_read(plural):
    what = unknown(world.longhorn(*COPIES), unreadable=[f"{plural}.longhorn.io"])
    assert "whether Longhorn makes way" in what
    assert f"{plural}.longhorn.io" in what


def test_the_only_csi_pod():
    alone = [node("a"), pod("csi-attacher-a", LONGHORN, {"app": "csi-attacher"}, "a")]
    found = blocker(
        [
            *alone,
            budget("csi-attacher", LONGHORN, {"app": "csi-attacher"}, allowed=0, minAvailable=1),
        ]
    )
    assert (found["now"], "csi-attacher" in found["remedy"]) == (False, True)


# --- Rook-Ceph ------------------------------------------------------------------------------------


def without(objects, *kinds_and_names):
    return [each for each in objects if (each.kind, each.name) not in kinds_and_names]


def rook_without(*kinds_and_names):
    return without(world.rook(), *kinds_and_names)


OSD_BUDGET = ("PodDisruptionBudget", "rook-ceph-osd")
CEPH = ("CephCluster", "ceph")


def test_rook_lets_the_osds_of_a_node_go():
    assert "about 1 minute" in wait(world.rook())["reason"]


def test_the_node_that_drains_already():
    found = drained(
        [*rook_without(OSD_BUDGET), world.blocking_budget("b"), world.blocking_budget("c")]
    )
    assert (found["drainable"], found["waits"]) == (True, [])


def test_another_node_drains():
    others = rook_without(OSD_BUDGET, ("Pod", "rook-ceph-osd-2"))
    away = [*others, world.osd(2, "b", ready=False)]
    found = blocker([*away, world.blocking_budget("a"), world.blocking_budget("c")])
    assert (found["now"], found["reason"]) == (
        True,
        "Ceph waits until b is back and its data is clean",
    )


def test_an_osd_of_another_node_is_down():
    down = [
        *rook_without(OSD_BUDGET, CEPH, ("Pod", "rook-ceph-osd-2")),
        world.osd(2, "b", ready=False),
    ]
    found = blocker([*down, world.osd_budget(allowed=0), world.ceph("HEALTH_WARN")])
    assert (found["now"], "an OSD of b is down" in found["reason"]) == (True, True)


def test_ceph_whose_health_is_not_known():
    assert "HEALTH_ERR" in unknown([*rook_without(CEPH), world.ceph("HEALTH_ERR")])
    assert "cephclusters.ceph.rook.io" in unknown(
        rook_without(CEPH), unreadable=["cephclusters.ceph.rook.io"]
    )


def late_rook(*more):
    """Return Rook with an OSD that left its node two hours ago, and its other OSD still there."""
    changed = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-26T10:00:00Z"}
    gone = world.osd(0, "a", ready=False)
    gone.data["status"] = world.DOWN | {"conditions": [changed]}
    for each in (kept := [world.osd(1, "a"), gone]):
        each.metadata.value["labels"]["ceph-osd-id"] = each.name[-1]
    others = rook_without(OSD_BUDGET, CEPH, ("Pod", "rook-ceph-osd-0"), ("Pod", "rook-ceph-osd-1"))
    return [*others, *kept, world.osd_budget(allowed=0), world.ceph("HEALTH_WARN"), *more]


def gatekeeper(excluded="kube-system", created="2026-11-01T00:00:00Z"):
    crd = {"spec": {"names": {"kind": "K8sBudgets"}}}
    code = [{"code": [{"source": {"rego": "input.review.object.spec.maxUnavailable == 0"}}]}]
    resources = [{"apiGroups": ["policy"], "kinds": ["PodDisruptionBudget"]}]
    match = {"kinds": resources, "excludedNamespaces": [excluded]}
    rules = [{"apiGroups": ["*"], "resources": ["*"], "operations": ["*"]}]
    return [
        manifest("v1", "Namespace", "rook-ceph"),
        manifest(
            "templates.gatekeeper.sh/v1",
            "ConstraintTemplate",
            "k8sbudgets",
            spec={"crd": crd, "targets": code},
        ),
        manifest(
            "constraints.gatekeeper.sh/v1beta1",
            "K8sBudgets",
            "strict",
            metadata={"creationTimestamp": created},
            spec={"match": match},
        ),
        webhook_configuration("gatekeeper", {"name": "validation.gatekeeper.sh", "rules": rules}),
    ]


def test_a_policy_may_deny_the_budgets_that_rook_makes_at_a_drain():
    (found,) = drained(late_rook(*gatekeeper()), time="2026-11-26T12:00:00Z")["blockers"]
    assert found["now"]
    assert found["reason"].endswith(
        "Rook has not let the other OSDs of the node go: K8sBudgets strict (Gatekeeper, "
        "enforcementAction deny) covers budgets in rook-ceph and reads maxUnavailable, so it may "
        "deny those of 0 that Rook makes first for the other failure domains"
    )
    assert found["remedy"].startswith(
        "Add rook-ceph to spec.match.excludedNamespaces of K8sBudgets strict: kubectl edit "
        "k8sbudgets strict; Rook then makes these budgets and removes this one itself"
    )


@pytest.mark.parametrize(("down", "operator"), [([], "In"), (["5"], "In"), ([], "NotIn")])
def test_rook_selects_its_osds_by_an_expression_since_1_19(down, operator):
    given = world.osd_budget()
    chosen = [{"key": "app", "operator": operator, "values": ["rook-ceph-osd"]}]
    chosen += [{"key": "ceph-osd-id", "operator": "NotIn", "values": down}] if down else []
    given.data["spec"] = {"selector": {"matchExpressions": chosen}, "maxUnavailable": 1}
    found = drained([*rook_without(OSD_BUDGET), given])
    assert any("about 1 minute" in each["reason"] for each in found["waits"]) is (operator == "In")


@pytest.mark.parametrize(
    "more",
    [[], gatekeeper("rook-ceph"), gatekeeper(created="2026-11-26T11:00:00Z")],
    ids=["no policy", "namespace excluded", "newer than the drain"],
)
def test_rook_is_late_for_another_reason(more):
    (found,) = drained(late_rook(*more), time="2026-11-26T12:00:00Z")["blockers"]
    assert found["reason"].endswith("Rook has not let the other OSDs of the node go")
    assert found["remedy"].startswith("See in the log of rook-ceph-operator")


def test_two_budgets_while_rook_replaces_one():
    found = blocker([*world.rook(), world.blocking_budget("a")])
    assert (found["now"], "Rook is replacing it" in found["reason"]) == (True, True)


MONITORS = [node("a"), *world.monitors(allowed=0)]


def test_a_monitor_is_down():
    assert blocker(MONITORS)["now"] is True
    unmanaged = world.ceph(disruptionManagement={"managePodBudgets": False})
    assert blocker([*MONITORS, unmanaged])["now"] is False  # then the form decides


# --- OpenShift, KubeVirt, and operators that are not known ----------------------------------------


def test_guards():
    labels = {"app": "guard"}
    pods = [
        pod(f"etcd-guard-{on}", "openshift-etcd", labels, on, ready=on != "c", owner="Node")
        for on in "abc"
    ]
    strict = budget(
        "etcd-guard-pdb", "openshift-etcd", labels, allowed=0, expected=3, minAvailable=2
    )
    found = blocker([node("a"), *pods, strict])
    assert (found["now"], found["reason"].startswith("etcd on c is not ready")) == (True, True)


def test_a_replica_of_kubevirt_is_not_ready():
    labels, by = {"kubevirt.io": "virt-api"}, {"app.kubernetes.io/managed-by": "virt-operator"}
    strict = budget("virt-api-pdb", "kubevirt", labels, allowed=0, own_labels=by, minAvailable=1)
    assert blocker([node("a"), pod("virt-api-a", "kubevirt", labels, "a"), strict])["now"] is True


def test_the_only_image_registry():
    labels, space = {"docker-registry": "default"}, "openshift-image-registry"
    strict = budget("image-registry", space, labels, allowed=0, minAvailable=1)
    found = blocker([node("a"), pod("image-registry-a", space, labels, "a"), strict])
    assert (found["now"], "replicas: 2" in found["remedy"]) == (False, True)


def custom(owner, **limit):
    strict = budget("cache", "shop", {"app": "cache"}, allowed=0, expected=3, owner=owner, **limit)
    return [node("a"), pod("cache-0", "shop", {"app": "cache"}, "a"), strict]


def test_the_owner_is_an_operator_that_is_not_known():
    redis = ("cache.example.com/v1", "Redis", "cache")
    assert "Redis cache writes it" in unknown(custom(redis, maxUnavailable=0))
    assert blocker(custom(redis, maxUnavailable=1))["now"] is True
    for owner in (None, ("apps/v1", "Deployment", "cache")):
        assert blocker(custom(owner, maxUnavailable=0))["now"] is False
