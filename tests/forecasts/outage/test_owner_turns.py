"""Owners of Machines of Cluster API: which of the marked Machines they delete, and which wait."""

import json

import pytest

from tests.forecasts.outage.losses import manifest, master, node, snapshot, vm
from virt_admit.forecasts.outage import health_actors
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.outages import outage

CORE, CONTROL = "cluster.x-k8s.io/v1beta2", "controlplane.cluster.x-k8s.io/v1beta2"
LABELS = {"cluster.x-k8s.io/cluster-name": "prod", "pool": "all"}
REVISION = "machinedeployment.clusters.x-k8s.io/revision"
NOW = "2026-01-01T12:00:00Z"
FOREVER = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]


def owned(name, kind, owner, **changed):
    reference = {"apiVersion": CORE, "kind": kind, "name": owner, "controller": True, "uid": owner}
    more = {"cluster.x-k8s.io/deployment-name": "workers"} if kind == "MachineSet" else {}
    metadata = {"labels": LABELS | more, "ownerReferences": [reference]} | changed.pop(
        "metadata", {}
    )
    status = {"nodeRef": {"name": name}} | changed.pop("status", {})
    spec = {"clusterName": "prod"} | changed
    return manifest(
        CORE, "Machine", f"machine-{name}", "capi", metadata=metadata, spec=spec, status=status
    )


def check():
    spec = {
        "clusterName": "prod",
        "selector": {"matchLabels": {"pool": "all"}},
        "checks": {
            "unhealthyNodeConditions": [
                {"type": "Ready", "status": "Unknown", "timeoutSeconds": 60}
            ]
        },
    }
    return manifest(CORE, "MachineHealthCheck", "all", "capi", spec=spec)


def management(control=None, topology=None):
    spec = {"controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "cp"}}
    spec |= {"topology": {"version": topology}} if topology else {}
    status = {
        "conditions": [
            {"type": each, "status": "True"}
            for each in ("InfrastructureReady", "ControlPlaneInitialized")
        ]
    }
    yield manifest(CORE, "Cluster", "prod", "capi", spec=spec, status=status)
    found = {"spec": {"version": "v1.34.2"}, "status": {"version": "v1.34.2"}} | (control or {})
    yield manifest(CONTROL, "KubeadmControlPlane", "cp", "capi", **found)


def workers(*, deployment=None, notes=None, template=None, revision="1"):
    labels = {"cluster.x-k8s.io/deployment-name": "workers"}
    metadata = {"labels": labels, "annotations": {REVISION: "1"} | (notes or {})}
    yield manifest(
        CORE,
        "MachineSet",
        "workers-1",
        "capi",
        metadata=metadata,
        spec={"template": {"spec": template or {}}},
    )
    spec = {"replicas": 3} | (deployment or {})
    metadata = {"annotations": {REVISION: revision}}
    yield manifest(CORE, "MachineDeployment", "workers", "capi", metadata=metadata, spec=spec)
    yield from (owned(name, "MachineSet", "workers-1") for name in ("n1", "n2", "n3"))


NODES = [node("n1"), node("n2"), node("n3")]


def actor(name, objects, lost=(), **seen):
    cluster = snapshot(objects, [check()], **seen)
    (found,) = health_actors.coverage(name, Loss((name, *lost), cluster)).actors
    return found


def test_a_machine_set_deletes_its_machines():
    found = actor("n1", [NODES, list(management()), list(workers())], ["n2"])
    assert found.certain
    assert not found.unseen


def test_a_machine_pool_is_left_to_its_provider():
    own = [owned(name, "MachinePool", "pool") for name in ("n1", "n2", "n3")]
    found = actor("n1", [NODES, list(management()), own])
    assert (found.certain, found.refuses) == (False, "")
    assert found.unseen == (
        "whether MachinePool pool deletes machine-n1: Cluster API leaves that to its "
        "infrastructure provider",
    )


@pytest.mark.parametrize(
    "deployment",
    [{"remediation": {"maxInFlight": 0}}, {"strategy": {"remediation": {"maxInFlight": "0%"}}}],
    ids=["v1beta2", "v1beta1"],
)
def test_a_machine_set_that_may_delete_none(deployment):
    found = actor("n1", [NODES, list(management()), list(workers(deployment=deployment))])
    assert found.says == (
        "MachineHealthCheck all refuses: MachineDeployment workers allows maxInFlight 0, so it "
        "deletes no unhealthy Machine"
    )


def test_the_annotation_pauses_a_machine_set():
    found = actor(
        "n1", [NODES, list(management()), list(workers(notes={"cluster.x-k8s.io/paused": ""}))]
    )
    assert (
        found.refuses == "MachineSet workers-1 is paused by the annotation cluster.x-k8s.io/paused"
    )


@pytest.mark.parametrize(
    ("limit", "certain"), [(1, False), (2, True), ("34%", True), ("33%", False)]
)
def test_one_deletion_that_never_ends_holds_up_the_next(limit, certain):
    """33 % of three Machines are one, 34 % are two: Cluster API rounds up."""
    some = list(workers(deployment={"remediation": {"maxInFlight": limit}}))
    stays = vm("db", "n2", evictionStrategy="LiveMigrate", tolerations=FOREVER)
    found = actor("n1", [NODES, list(management()), some, stays], ["n2"])
    assert not found.refuses
    assert found.certain is certain
    said = (
        "whether MachineSet workers-1 deletes machine-n1: MachineDeployment workers allows "
        "maxInFlight"
    )
    assert certain or f"{said} {limit}, and the deletion of machine-n2 may not end" in found.unseen


def test_two_deletions_that_end_need_no_more_than_time():
    some = list(workers(deployment={"remediation": {"maxInFlight": 1}}))
    assert actor("n1", [NODES, list(management()), some], ["n2"]).certain


def test_a_machine_of_an_older_revision_is_left_to_the_roll_out():
    found = actor("n1", [NODES, list(management()), list(workers(revision="2"))])
    assert [
        each
        for each in found.unseen
        if "only the roll-out of its MachineDeployment deletes" in each
    ]


def test_a_vm_of_an_older_revision_is_told_what_is_not_known():
    """The check selects its Machine: only its effect is not known."""
    above = list(management())
    found = outage(
        ("n1",), snapshot(NODES, above, list(workers(revision="2")), vm("db", "n1"), [check()])
    )
    assert found.vms[0].reason.startswith(
        "MachineHealthCheck all watches n1, and it is not known whether MachineSet workers-1 "
        "deletes machine-n1: only the roll-out"
    )


def test_a_machine_that_is_being_deleted_waits_for_no_check():
    """Nothing has to delete it first, so it is not asked whether its owner would."""
    *above, own, second, third = workers(revision="2")
    own["metadata"]["deletionTimestamp"] = NOW
    found = actor("n1", [NODES, list(management()), [*above, own, second, third]])
    assert found.certain
    assert [part.what for part in found.parts] == ["detected", "remediated", "pod gone"]


UPGRADING = {
    "spec": {"version": "v1.35.0"},
    "status": {"versions": [{"version": "v1.34.2"}, {"version": "v1.35.0"}]},
}
NEW = {"spec": {"version": "v1.34.2"}, "status": {}}


@pytest.mark.parametrize(
    ("control", "topology", "why"),
    [
        (UPGRADING, None, "is upgrading"),
        (NEW, None, "is being provisioned"),
        (None, "v1.35.0", "waits for its upgrade to v1.35.0"),
        (None, "v1.34.2", ""),
        ({"spec": {}, "status": {}}, None, ""),
    ],
)
def test_an_upgrade_of_the_control_plane_holds_up_machine_sets(control, topology, why):
    above = list(management(control, topology))
    found = actor("n1", [NODES, above, list(workers())])
    says = "whether MachineSet workers-1 deletes machine-n1: its preflight check "
    says += f"ControlPlaneIsStable waits, as KubeadmControlPlane cp {why}"
    assert found.unseen == ((says,) if why else ())
    skips = {
        "machineset.cluster.x-k8s.io/skip-preflight-checks": (
            "KubeadmVersionSkew, ControlPlaneIsStable"
        )
    }
    assert actor("n1", [NODES, above, list(workers(notes=skips))]).certain


KUBEADM = {"configRef": {"kind": "KubeadmConfigTemplate", "name": "workers"}}


@pytest.mark.parametrize(
    ("version", "bootstrap", "topology", "fails"),
    [
        ("v1.34.0", KUBEADM, None, ""),
        ("v1.33.7", KUBEADM, None, "KubeadmVersionSkew"),
        ("v1.33.7", {}, None, ""),
        ("v1.31.0", {}, None, ""),
        ("v1.30.9", {}, None, "KubernetesVersionSkew"),
        ("v1.35.0", {}, None, "KubernetesVersionSkew"),
        ("v1.34.2", {}, "v1.34.2", ""),
        ("v1.34.1", {}, "v1.34.2", "ControlPlaneVersionSkew"),
    ],
)
def test_workers_of_another_version_are_not_replaced(version, bootstrap, topology, fails):
    """A MachineSet does not make what kubeadm would not join."""
    template = {"version": version, "bootstrap": bootstrap}
    above = list(management(topology=topology))
    found = actor("n1", [NODES, above, list(workers(template=template))])
    said = (
        f"whether MachineSet workers-1 deletes machine-n1: its preflight check {fails} waits, as "
        f"the version of the MachineSet is {version}, and that of KubeadmControlPlane cp is "
        "v1.34.2"
    )
    assert found.unseen == ((said,) if fails else ())
    skips = {"machineset.cluster.x-k8s.io/skip-preflight-checks": fails}
    skipped = list(workers(template=template, notes=skips))
    assert actor("n1", [NODES, above, skipped]).certain


def test_machine_sets_that_may_not_be_read():
    objects = [
        NODES,
        list(management()),
        [each for each in workers() if each["kind"] != "MachineSet"],
    ]
    assert actor("n1", objects, unreadable=("machinesets.cluster.x-k8s.io",)).unseen == (
        "machinesets.cluster.x-k8s.io capi/workers-1",
    )


def test_the_drain_ends_when_the_owner_says_so():
    """What a user wrote to the Machine itself does not stay once it is deleted."""
    stays = vm("db", "n1", evictionStrategy="LiveMigrate", tolerations=FOREVER)
    of_owner = list(workers(template={"deletion": {"nodeDrainTimeoutSeconds": 600}}))
    found = actor("n1", [NODES, list(management()), of_owner, stays])
    assert found.parts[2].low == 600
    *above, own, second, third = workers()
    own["spec"]["deletion"] = {"nodeDrainTimeoutSeconds": 600}
    found = actor("n1", [NODES, list(management()), [*above, own, second, third], stays])
    assert "the drain of the dead node never ends" in found.refuses


@pytest.mark.parametrize(("limit", "takes"), [(120, 120), (900, 301), (None, 301)])
def test_the_drain_ends_at_its_limit_or_when_the_pods_may_be_skipped(limit, takes):
    """The VM may be skipped 411 s after the loss. The Machine is deleted after 110 s."""
    stays = vm("db", "n1", evictionStrategy="LiveMigrate", terminationGracePeriodSeconds=30)
    template = {"deletion": {"nodeDrainTimeoutSeconds": limit}} if limit else None
    found = actor("n1", [NODES, list(management()), list(workers(template=template)), stays])
    assert found.parts[2].low == takes


# --- KubeadmControlPlane --------------------------------------------------------------------------


def masters(count=3, **first):
    names = [f"cp-{number}" for number in range(count)]
    return [
        *(master(name) for name in names),
        *(
            owned(name, "KubeadmControlPlane", "cp", **(first if name == "cp-0" else {}))
            for name in names
        ),
    ]


def test_a_control_plane_replaces_the_machine_of_a_lost_node():
    assert actor("cp-1", [masters(), list(management())]).certain


@pytest.mark.parametrize(
    "template",
    [{"spec": {"deletion": {"nodeDrainTimeoutSeconds": 600}}}, {"nodeDrainTimeout": "10m"}],
    ids=["v1beta2", "v1beta1"],
)
def test_the_drain_of_a_master_ends_when_the_control_plane_says_so(template):
    stays = vm("db", "cp-1", evictionStrategy="LiveMigrate", tolerations=FOREVER)
    spec = {"version": "v1.34.2", "machineTemplate": template}
    above = list(management({"spec": spec, "status": {"version": "v1.34.2"}}))
    assert actor("cp-1", [masters(), above, stays]).parts[2].low == 600


@pytest.mark.parametrize("node", ["cp-1", "cp-2"])
def test_a_control_plane_replaces_one_machine_at_a_time(node):
    (other,) = {"cp-1", "cp-2"} - {node}
    found = actor(node, [masters(5), list(management())], [other])
    said = f"machine-{node}: machine-{other} is lost too, and only one is replaced at a time"
    assert found.unseen == (f"whether KubeadmControlPlane cp deletes {said}",)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ({"metadata": {"labels": LABELS, "deletionTimestamp": NOW}}, ""),
        ({"status": {"nodeRef": {}}}, "machine-cp-0 is not a node yet"),
    ],
    ids=["deleted", "new"],
)
def test_a_control_plane_waits_for_another_machine(first, why):
    if not why:
        reference = {
            "apiVersion": CONTROL,
            "kind": "KubeadmControlPlane",
            "name": "cp",
            "controller": True,
            "uid": "cp",
        }
        first["metadata"]["ownerReferences"] = [reference]
        why = "machine-cp-0 is being deleted"
    found = actor("cp-1", [masters(5, **first), list(management())])
    assert f"whether KubeadmControlPlane cp deletes machine-cp-1: {why}" in found.unseen


@pytest.mark.parametrize(
    ("remediation", "retries", "until"),
    [
        ({}, 9, ""),
        ({"maxRetry": 3}, 3, "12:50"),
        ({"maxRetry": 4}, 3, ""),
        ({"maxRetry": 3, "minHealthyPeriodSeconds": 300}, 3, ""),
        ({"retryPeriodSeconds": 1800}, 0, "12:20"),
        ({"retryPeriodSeconds": 1800, "maxRetry": 1}, 1, "12:50"),
    ],
)
@pytest.mark.parametrize("older", [False, True])
def test_a_replacement_that_fails_too_is_replaced_later(remediation, retries, until, older):
    if older:
        named = {key: value for key, value in remediation.items() if key == "maxRetry"}
        durations = {key: f"{value}s" for key, value in remediation.items() if key != "maxRetry"}
        remediation = named | {
            key.removesuffix("Seconds"): value for key, value in durations.items()
        }
    spec = {"version": "v1.34.2", "remediationStrategy" if older else "remediation": remediation}
    data = json.dumps(
        {"machine": "machine-x", "timestamp": "2026-01-01T11:50:00Z", "retryCount": retries}
    )
    objects = masters()
    objects[3]["metadata"]["annotations"] = {"controlplane.cluster.x-k8s.io/remediation-for": data}
    for each in objects[:3]:
        each["status"]["conditions"][0]["lastHeartbeatTime"] = NOW
    found = actor(
        "cp-0", [objects, list(management({"spec": spec, "status": {"version": "v1.34.2"}}))]
    )
    assert found.certain is not bool(until)
    if until:
        (said,) = found.unseen
        assert said.startswith(
            "whether KubeadmControlPlane cp deletes machine-cp-0: it replaces machine-x, so that "
            "it stays"
        )
        assert until in said


LATE = '{"machine": "x", "timestamp": "9998-12-31T00:00:00Z"}'


@pytest.mark.parametrize(
    "data",
    ["", "{", "[]", '{"machine": 1}', '{"machine": "x", "timestamp": "?"}', "[" * 100000, LATE],
)
def test_a_note_that_cannot_be_read_says_nothing(data):
    objects = masters()
    objects[0]["status"]["conditions"][0]["lastHeartbeatTime"] = NOW
    objects[3]["metadata"]["annotations"] = {"controlplane.cluster.x-k8s.io/remediation-for": data}
    spec = {"version": "v1.34.2", "remediation": {"minHealthyPeriodSeconds": 2**31 - 1}}
    assert actor("cp-0", [objects, list(management({"spec": spec}))]).certain
