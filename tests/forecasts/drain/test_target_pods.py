"""Pods that a migration needs and that do not come: the cause is named,
and the wait has no known end.
"""

import pytest

from tests import builders
from tests.builders import NAMESPACE, SCHEDULABLE, kubevirt, manifest
from tests.forecasts.drain.test_vm_states import (
    HOTPLUG,
    LAUNCHER,
    MARKED,
    MIGRATES,
    UNKNOWN,
    UNSCHEDULABLE,
    row,
    target,
)
from tests.forecasts.drain.vm_motion import (
    ROOM,
    ago,
    attachment,
    cluster,
    launcher,
    migration,
    node,
    vmi,
)
from virt_admit.forecasts.drain import typed_remedies, vm_outcomes
from virt_admit.forecasts.drain.control import control_path
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.problems import Problem, ProblemCause, ProblemId

BLOCKS = "blocks the drain"
SCHEDULING = migration(phase="Scheduling")
REFUSED = 'pods "hp-volume-x" is forbidden: memory max limit to request ratio per Container is 2'


def test_kubevirt_without_a_time_limit_for_target_pods_promises_none():
    old = kubevirt(status={"observedKubeVirtVersion": "v0.45.0"})
    items = [vmi(**MARKED), LAUNCHER, SCHEDULING, pending()]

    assert row(cluster(*items)).state.until is not None
    assert row(cluster(old, *items)).state.until is None


def warning(of, reason, message, age=10):
    return builders.warning(of, reason, message, ago(age))


def waiting(reason, message=""):
    return [{"name": "compute", "state": {"waiting": {"reason": reason, "message": message}}}]


def pending(**fields):
    return target(phase="Pending", conditions=[], **fields)


@pytest.mark.parametrize(("age", "starts"), [(8, True), (90, False)])
def test_a_target_pod_that_starts_for_seconds_is_not_late(age, starts):
    found = row(cluster(vmi(**MARKED), LAUNCHER, SCHEDULING, pending(age=age)))

    assert found.outcome == MIGRATES
    assert ("has been starting for" in found.reason) is starts
    assert ("; unless it starts before, KubeVirt gives the" in found.reason) is not starts
    assert bool(found.remedy) is not starts


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("ImagePullBackOff", UNKNOWN),
        ("CreateContainerConfigError", UNKNOWN),
        ("ContainerCreating", MIGRATES),
    ],
)
def test_a_container_that_cannot_start_is_met_again_by_the_next_target_pod(kind, reason, outcome):
    pod = pending(**{kind: waiting(reason, 'Back-off pulling image "x"')})
    found = row(cluster(vmi(**MARKED), LAUNCHER, SCHEDULING, pod))

    assert found.outcome == outcome
    assert (
        f'{reason}: Back-off pulling image "x"; KubeVirt gives the migration up at' in found.reason
    ) is (outcome == UNKNOWN)


@pytest.mark.parametrize(("age", "outcome"), [(10, UNKNOWN), (400, MIGRATES)])
@pytest.mark.parametrize("reason", ["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"])
def test_a_recent_warning_about_the_target_pod_is_its_cause(reason, age, outcome):
    pod = pending(age=500)
    objects = [
        vmi(**MARKED),
        LAUNCHER,
        SCHEDULING,
        pod,
        warning(pod, reason, "rbd image is still being used", age),
    ]
    found = row(cluster(*objects))

    assert found.outcome == outcome
    assert ("rbd image is still being used" in found.reason) is (outcome == UNKNOWN)


@pytest.mark.parametrize(("age", "outcome"), [(40, MIGRATES), (500, UNKNOWN)])
@pytest.mark.parametrize("case", ["target not ready", "attachment not ready", "no attachment"])
def test_a_pod_that_is_not_ready_when_virt_launcher_has_given_up_has_no_known_end(
    case, age, outcome
):
    pod = target(ready=case != "target not ready", age=age)
    spec = {} if case == "target not ready" else HOTPLUG
    objects = [vmi(**MARKED, spec=spec), LAUNCHER, SCHEDULING, pod]
    objects += [attachment(pod, ready=False)] if case == "attachment not ready" else []

    assert row(cluster(*objects)).outcome == outcome


@pytest.mark.parametrize(("age", "outcome"), [(60, MIGRATES), (900, UNKNOWN)])
def test_a_migration_that_stays_open_keeps_those_that_wait_for_its_place(age, outcome):
    done = {
        "migrationUid": "uid-other",
        "sourceNode": "a",
        "completed": True,
        "endTimestamp": ago(age),
    }
    state = {"domain": {"devices": {"tpm": {"persistent": True}}, "memory": {"guest": "1Gi"}}}
    holder = [vmi("web", on="b", spec=state, migrationState=done), launcher("web", on="b")]
    holder.append(migration("other", "Running", of="web", since={"Running": age + 20}))
    limit = kubevirt({"migrations": {"parallelOutboundMigrationsPerNode": 1}})
    found = row(cluster(vmi(**MARKED), LAUNCHER, migration(), *holder, limit))

    assert found.outcome == outcome
    open_since = (
        "(has migrated, but its migration is still open: the claim of its vTPM or EFI state)"
    )
    assert (open_since in found.reason) is (outcome == UNKNOWN)
    assert row(cluster(*holder, limit), "web", "b").outcome == outcome


@pytest.mark.parametrize("age", [400, 90_000])
def test_of_two_pods_the_one_in_which_the_guest_does_not_run_has_to_end(age):
    other = launcher(suffix="0", on="c", age=age)
    found = row(cluster(vmi(), LAUNCHER, other))

    assert found.outcome == BLOCKS
    assert f"its other pod {other.name} has ended" in found.reason


def test_an_unready_virt_handler_is_the_cause_where_nodes_are_ready():
    nodes = [builders.node(name, {SCHEDULABLE: "false"}, allocatable=ROOM) for name in ("b", "c")]
    found = row(cluster(vmi(), LAUNCHER, *nodes))

    assert "virt-handler serves none of the nodes that could take it: b, c" in found.reason
    assert "no node that could take it is schedulable now" not in found.reason


def test_a_virt_handler_that_does_not_start_passes_and_is_no_reason_to_shut_the_guest_down():
    status = {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}
    status["containerStatuses"] = waiting("ImagePullBackOff", "a; b")
    labels = {"labels": {"kubevirt.io": "virt-handler"}}
    handlers = [
        manifest(
            "v1",
            "Pod",
            f"virt-handler-{on}",
            "kubevirt",
            metadata=labels,
            spec={"nodeName": on},
            status=status,
        )
        for on in ("b", "c")
    ]
    found = row(cluster(vmi(), LAUNCHER, *handlers))

    assert "virt-handler serves none of the nodes that could take it: b, c" in found.reason
    assert "(virt-handler on b is not ready: ImagePullBackOff: a, b)" in found.reason
    assert "repair pod virt-handler-b" in found.remedy
    assert "evictionStrategy" not in found.remedy


def test_a_missing_migration_network_is_why_virt_handler_does_not_start():
    labels = {"kubevirt.io": "virt-handler"}
    status = {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}
    handler = manifest(
        "v1",
        "Pod",
        "virt-handler-a",
        "kubevirt",
        metadata={"labels": labels},
        spec={"nodeName": "a"},
        status=status,
    )
    network = manifest("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "fast", "kubevirt")
    settings = kubevirt({"migrations": {"network": "fast"}})

    def said(*more):
        return row_control(cluster(vmi(), LAUNCHER, handler, settings, *more))

    assert "NetworkAttachmentDefinition kubevirt/fast, does not exist" in said()
    assert said(network).endswith("is not ready")


def row_control(snapshot):
    return next(
        each.reason
        for each in control_path.of_node(snapshot, "a").components
        if each.component == "virt-handler"
    )


@pytest.mark.parametrize("moves", [True, False])
def test_a_migration_that_copies_volumes_needs_a_longer_limit(moves):
    own = vmi(**MARKED, **({"migratedVolumes": [{"volumeName": "data"}]} if moves else {}))
    start = {
        "startTimestamp": ago(9000),
        "endTimestamp": ago(100),
        "completed": True,
        "failed": True,
    }
    start |= {
        "failureReason": "Live migration has been aborted",
        "sourceNode": "a",
        "targetNode": "b",
    }
    phases = {"Running": 9000, "Failed": 100}
    tries = [migration(f"try-{n}", "Failed", since=phases, age=9000 + n, **start) for n in range(2)]
    found = row(cluster(own, LAUNCHER, *tries))

    assert found.outcome == BLOCKS
    assert ("completionTimeoutPerGiB" in found.remedy) is moves


def test_a_budget_that_counts_replicas_says_why_it_never_allows_an_eviction():
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"kubevirt.io": "virt-launcher"}}}
    budget = manifest("policy/v1", "PodDisruptionBudget", "etcd", NAMESPACE, spec=spec)
    found = row(cluster(vmi(spec={"evictionStrategy": "None"}), LAUNCHER, budget))

    assert found.outcome == BLOCKS
    assert "maxUnavailable counts replicas, and a VMI has no scale" in found.reason


@pytest.mark.parametrize(
    ("bandwidth", "outcome"), [("32Mi", UNKNOWN), ("64Mi", MIGRATES), ("0", MIGRATES)]
)
def test_a_bandwidth_below_the_deadline_cancels_each_migration_of_full_memory(bandwidth, outcome):
    limits = {"bandwidthPerMigration": bandwidth, "completionTimeoutPerGiB": 20}

    def judged(more=limits, **status):
        return row(cluster(vmi(**status), LAUNCHER, kubevirt({"migrations": more})))

    assert judged().outcome == outcome
    assert ("bandwidthPerMigration" in judged().reason) is (outcome == UNKNOWN)
    assert judged(limits | {"allowPostCopy": True}).outcome == MIGRATES
    before = {"completed": True, "startTimestamp": ago(500), "endTimestamp": ago(440)}
    assert judged(migrationState=before).outcome == MIGRATES


@pytest.mark.parametrize(
    ("labels", "seconds", "way"),
    [
        ({"cpu-vendor.node.kubevirt.io/Intel": "true"}, 900, "see why virt-handler offers no"),
        ({}, 900, "switch on hardware virtualization for b, c: in the firmware"),
        ({}, 300, "see why virt-handler offers no devices."),
    ],
    ids=["labelled", "without labels", "new"],
)
def test_devices_of_virt_handler_are_its_own(labels, seconds, way):
    nodes = [
        builders.node(name, labels, allocatable=ROOM | {"devices.kubevirt.io/kvm": "0"})
        for name in ("b", "c")
    ]
    for each in nodes:
        each.metadata.value["creationTimestamp"] = ago(seconds)
    own = launcher()
    own.data["spec"]["containers"] = [
        {"name": "compute", "resources": {"requests": {"devices.kubevirt.io/kvm": "1"}}}
    ]
    found = row(cluster(vmi(), own, *nodes))

    assert found.remedy.startswith(way)


def given_up(number, lasted=912):
    """Return a migration that failed because its target pod did not start in time."""
    age = 9000 - number * 1000
    since = {"Pending": age, "Scheduling": age - 1, "Failed": age - lasted}
    return migration(f"evacuation-0{number}", "Failed", age=age, since=since)


@pytest.mark.parametrize(
    ("past", "age", "outcome"),
    [
        ((), 800, UNKNOWN),
        ((given_up(1),), 300, UNKNOWN),
        ((given_up(1),), 800, BLOCKS),
        ((given_up(1), given_up(2)), 300, BLOCKS),
        ((given_up(1, 301), given_up(2, 301)), 800, UNKNOWN),  # no node took those pods
    ],
)
def test_a_target_pod_that_fails_like_those_before_does_not_pass(past, age, outcome):
    pod = pending(age=age)
    objects = [
        vmi(**MARKED),
        LAUNCHER,
        *past,
        SCHEDULING,
        pod,
        warning(pod, "FailedCreatePodSandBox", "no network"),
    ]
    found = row(cluster(*objects))

    assert found.outcome == outcome
    assert ("given up after 15 min too" in found.reason) is (outcome == BLOCKS)
    starts = pending(age=age, containerStatuses=waiting("ContainerCreating"))
    assert row(cluster(vmi(**MARKED), LAUNCHER, *past, SCHEDULING, starts)).outcome == MIGRATES


UNREGISTERED = (
    'MountVolume.MountDevice failed for volume "pvc-1" : kubernetes.io/csi: attacher.MountDevice '
    "failed to create newCsiDriverClient: driver name csi.example.com not found in the list of "
    "registered CSI drivers"
)


@pytest.mark.parametrize(
    ("said", "age", "open_nodes"),
    [(UNREGISTERED, 500, {"c"}), (UNREGISTERED, 100, {"b", "c"}), ("busy", 500, {"b", "c"})],
    ids=["for long", "for a short time", "not a fault of the node"],
)
def test_a_node_that_keeps_a_target_pod_from_starting_is_no_target(said, age, open_nodes):
    pod = pending(age=age)
    objects = [vmi(**MARKED), LAUNCHER, given_up(1), SCHEDULING, pod]
    snapshot = cluster(*objects, warning(pod, "FailedMount", said))
    found = vm_outcomes.forecast(objects[0], snapshot)

    assert set(found.target.placement.candidates) == open_nodes
    other = "; or, until then, cordon b, and the next one goes to c: kubectl cordon b"
    assert (other in found.remedy) is (said == UNREGISTERED)


def without_addresses(name):
    """Return a node whose pods have each of the five addresses of its range."""
    each = ord(name)
    full = node(name, podCIDR=f"10.9.{each}.0/29")
    full.data["status"]["allocatable"]["pods"] = "110"
    yield full
    for number in range(2, 7):
        status = {"phase": "Running", "podIP": f"10.9.{each}.{number}"}
        yield manifest("v1", "Pod", f"{name}{number}", spec={"nodeName": name}, status=status)


@pytest.mark.parametrize(
    ("full", "past", "outcome", "says"),
    [
        ("bc", (), BLOCKS, "Each retry fails alike, as c cannot start it either"),
        ("b", (given_up(1, 301),), BLOCKS, "It goes on so while kube-scheduler chooses b"),
        ("b", (), UNKNOWN, "b has no free pod address"),
        ("c", (given_up(1, 301),), UNKNOWN, "Cilium has no address left on b"),
    ],
)
def test_a_node_without_addresses_is_named_as_no_other_target(full, past, outcome, says):
    pod = pending(age=100)
    error = 'plugin type="cilium-cni": local cilium agent: [POST /ipam][502] range is full'
    said = warning(pod, "FailedCreatePodSandBox", error)
    own = [each for name in full for each in without_addresses(name)]
    found = row(cluster(vmi(**MARKED), LAUNCHER, *past, SCHEDULING, pod, said, *own))

    assert found.outcome == outcome
    assert says in found.reason
    assert ("cordon b, and the next one goes to c" in found.remedy) is (full == "b")
    assert "repair the network plugin" not in found.remedy


@pytest.mark.parametrize(
    ("closed", "outcome", "says"),
    [
        (True, BLOCKS, "Each retry fails alike, as no other node takes it (c: cordoned)"),
        (False, UNKNOWN, "has a volume of this export mounted; KubeVirt gives the migration up"),
    ],
)
def test_the_only_node_that_takes_a_vm_is_refused_by_its_nfs_server(closed, outcome, says):
    pod = pending(age=400)
    error = "MountVolume.SetUp failed: access denied by server while mounting s:/x"
    claim = [{"name": "d", "persistentVolumeClaim": {"claimName": "other"}}]
    spec = {"nodeName": "c", "volumes": claim}
    mounted = (
        manifest("v1", "Pod", "other", NAMESPACE, spec=spec, status={"phase": "Running"}),
        manifest("v1", "PersistentVolumeClaim", "other", NAMESPACE, spec={"volumeName": "pv"}),
        manifest("v1", "PersistentVolume", "pv", spec={"nfs": {"server": "s", "path": "/x"}}),
        node("c", unschedulable=closed),
    )
    objects = [vmi(**MARKED), LAUNCHER, SCHEDULING, pod, warning(pod, "FailedMount", error)]
    found = row(cluster(*objects, *mounted))

    assert found.outcome == outcome
    assert says in found.reason
    assert "on s, add b to the clients of the export" in found.remedy
    assert ("cordon b" in found.remedy) is not closed


def test_a_failed_migration_without_the_time_of_its_end_ended_before_the_next_one():
    past = migration("evacuation-0", "Failed", age=1700, since={"Scheduling": 1699})
    now = migration(phase="Scheduling", age=500)
    pod = pending(age=500)
    said = warning(pod, "FailedMount", "busy")
    found = row(cluster(vmi(**MARKED), LAUNCHER, past, now, pod, said))

    assert "its last migration was given up after 15 min too" in found.reason


@pytest.mark.parametrize(
    ("drain", "ends"), [(True, ", then repeats it"), (False, ", and does not repeat it")]
)
def test_a_migration_of_a_person_is_not_repeated(drain, ends):
    unplaced = target(on="", phase="Pending", conditions=UNSCHEDULABLE)
    found = row(cluster(vmi(), LAUNCHER, unplaced, migration(drain=drain)))

    assert "; KubeVirt gives the migration up at" in found.reason
    assert ends in found.reason


@pytest.mark.parametrize(("age", "outcome"), [(360, MIGRATES), (1200, UNKNOWN)])
@pytest.mark.parametrize(("placed", "limit"), [(True, 900), (False, 300)])
def test_a_time_that_has_passed_is_not_promised(placed, limit, age, outcome):
    pod = (
        pending(age=age + limit - 300)
        if placed
        else target(on="", phase="Pending", conditions=UNSCHEDULABLE, age=age)
    )
    found = row(cluster(vmi(**MARKED), LAUNCHER, SCHEDULING, pod))

    assert found.outcome == outcome
    assert "; its time was over at" in found.reason
    assert "gives the migration up" not in found.reason


@pytest.mark.parametrize(("release", "at_once"), [("v1.2.2", False), ("v1.6.0", True)])
def test_the_command_removes_the_name_of_the_node(release, at_once):
    """What the administrator may do instead stands behind it,
    and LiveUpdate needs its gate before 1.5.
    """
    named = {"kubernetes.io/hostname": "a", "disk": "fast"}
    owner = manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "db",
        NAMESPACE,
        spec={"template": {"spec": {"nodeSelector": named}}},
    )
    pinned = Problem(
        "x",
        "remove the node selector for a from the VM, or let drains shut the guest down",
        ProblemCause.NO_TARGET,
    )
    cluster = Snapshot([owner, kubevirt(status={"observedKubeVirtVersion": release})], ["*"])
    found = typed_remedies.with_command(pinned, owner, cluster)

    assert found.command.endswith(
        '[{"op":"remove","path":"/spec/template/spec/nodeSelector/kubernetes.io~1hostname"}]\''
    )
    assert found.remedy.startswith("remove the node selector for a from the VM")
    assert found.remedy.endswith("; or stop it until the drain is over (virtctl stop db -n shop)")
    staged = "which takes effect after its restart (virtctl restart db -n shop)"
    live = "which the running VM gets without a restart (unless it has RestartRequired)"
    assert f"{live if at_once else staged}: kubectl patch vm db" in found.remedy


def test_a_quota_that_is_not_known_has_not_the_name_of_the_vm():
    refused = Problem("a quota refuses it", "raise it", ProblemCause.QUOTA)
    refused = refused._replace(id=ProblemId(ProblemCause.QUOTA, "shop", "db"))
    vmi = manifest("kubevirt.io/v1", "VirtualMachineInstance", "db", "shop")

    found = typed_remedies.with_command(refused, vmi, Snapshot([vmi], ["*"]))

    assert found.command == "kubectl describe resourcequota -n shop"
