"""The Machine of a node that is lost is being deleted already: what its deletion waits for,
and whether that ends.
"""

import copy

import pytest

from tests.forecasts.outage import losses
from tests.healthy.parts import ago, budget, deployment
from tests.incidents_platform import cluster_api
from tests.incidents_platform.case import NODES, cluster, ending, only, unready
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.remediation import failed_remediations
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
LABELS = {"app": "ledger"}
UNDRAINED = {"cluster.x-k8s.io": "machine.cluster.x-k8s.io", "openshift": "machine.openshift.io"}


def dead(items, **since):
    """Return the cluster with a node n1 that stopped reporting at that time."""
    for condition in only(items, "Node", "n1")["status"]["conditions"]:
        condition |= {
            "status": "Unknown",
            "lastTransitionTime": ago(**since),
            "lastHeartbeatTime": ago(**since),
        }
    return items


def ledger(*, tolerates=True, deleted=None, **protected):
    """Return a pod on n1 that no eviction may end, by its budget."""
    (pod,) = deployment("ledger", "vms", ["n1"], LABELS, kind="StatefulSet")[1:]
    pod = unready(pod) if deleted is None else ending(pod, "Running", **deleted)
    if tolerates:
        pod["spec"]["tolerations"] = [UNREACHABLE]
    own = budget("ledger", "vms", LABELS, 1, available=1)
    own["spec"] |= protected
    own["status"] |= {"currentHealthy": 0}
    return [pod, own]


def machine(deleted, conditions=(), notes=None, **spec):
    found = cluster_api.machine("machine-n1", "n1", conditions=list(conditions))
    found["metadata"] |= {"deletionTimestamp": ago(**deleted), "annotations": notes or {}}
    found["spec"] |= spec
    found["status"]["deletion"] = {"nodeDrainStartTime": ago(**deleted)}
    return found


def openshift(deleted, conditions=(), hooks=()):
    *found, check = losses.machines("n1", "n2", "n3")
    own = next(each for each in found if each["metadata"]["name"] == "machine-n1")
    own["metadata"]["deletionTimestamp"] = ago(**deleted)
    own["spec"]["lifecycleHooks"] = {"preDrain": list(hooks)}
    own["status"] |= {"phase": "Deleting", "conditions": list(conditions)}
    return [*found, check]


def capi(own):
    return [
        own,
        *(cluster_api.machine(f"machine-{name}", name) for name in NODES[1:]),
        *cluster_api.management(),
    ]


def cluster_with(*parts, since=None):
    """Return a cluster in which n1 is lost, and the pod of its VM is being deleted."""
    items = dead(cluster(vms=[("web", "n1")]), **(since or {"minutes": 72}))
    launcher = only(items, "Pod", "virt-launcher-web-k2x7q")
    items[items.index(launcher)] = ending(
        launcher, "Running", minutes=(since or {"minutes": 72})["minutes"] - 6
    )
    return items + [
        copy.deepcopy(each)
        for part in parts
        for each in (part if isinstance(part, list) else [part])
    ]


def lost(*parts, since=None):
    """Return what becomes of that VM."""
    items = cluster_with(*parts, since=since)
    seen = Snapshot(map(Object, items), ["*"], server_version="v1.33.4", time=ago())
    (one,) = outages(Question(nodes=("n1",)), seen).outages
    (vm,) = one.vms
    return vm


LONG = {"minutes": 64}
SHORT = {"minutes": 2}
JUST_LOST = {"minutes": 9}


@pytest.mark.parametrize("platform", UNDRAINED)
def test_a_drain_that_waits_for_a_pod_without_a_limit_never_ends(platform):
    own = capi(machine(LONG)) if platform == "cluster.x-k8s.io" else openshift(LONG)
    vm = lost(own, ledger())
    assert vm.outcome == "never restarts"
    assert (
        "can do no more: Machine machine-n1 is being deleted for 64 min, and its drain waits "
        "without a"
    ) in vm.reason
    assert (
        "for pod vms/ledger-0: PodDisruptionBudget vms/ledger: minAvailable is 1 for 1 pod"
        in vm.reason
    )
    assert f"{UNDRAINED[platform]}/exclude-node-draining=" in vm.remedy
    assert ("nodeDrainTimeout" in vm.remedy) is (platform == "cluster.x-k8s.io")
    assert "confirm that n1 is powered off, then: kubectl taint nodes n1" in vm.remedy
    assert vm.by_hand is not None


@pytest.mark.parametrize(
    ("changed", "pods"),
    [
        ({}, []),
        ({}, ledger(deleted={"minutes": 4})),  # of an unreachable node no end of a pod is awaited
        ({}, ledger(unhealthyPodEvictionPolicy="AlwaysAllow")),
        ({"notes": {"machine.cluster.x-k8s.io/exclude-node-draining": ""}}, ledger()),
        ({"nodeDrainTimeout": "5m"}, ledger()),
    ],
)
def test_a_deletion_that_goes_on_is_timed_from_now(changed, pods):
    vm = lost(capi(machine(SHORT, **changed)), pods, since=JUST_LOST)
    assert vm.outcome == "restarts"
    assert "Machine machine-n1 is being deleted for 2 min" in vm.reason
    assert "acts" not in vm.reason
    assert vm.from_now
    assert vm.at is not None
    assert vm.at.low == (240 if "nodeDrainTimeout" in changed else 60)
    assert ("and its drain ends at 12:03 UTC at the latest" in vm.reason) is (
        "nodeDrainTimeout" in changed
    )
    assert [part.what for part in vm.parts][:2] == ["remediated", "pod gone"]


def test_the_first_deletion_of_a_pod_that_is_tolerated_for_a_while_is_awaited():
    vm = lost(capi(machine(SHORT)), ledger(tolerates=False), since=JUST_LOST)
    assert vm.outcome == "restarts"


def test_a_drain_that_a_skipped_pod_would_hold_goes_on():
    pod, own = ledger()
    pod["metadata"]["labels"] = LABELS | {"cluster.x-k8s.io/drain": "skip"}
    assert lost(capi(machine(SHORT)), pod, own, since=JUST_LOST).outcome == "restarts"


def test_a_budget_that_may_allow_it_later_leaves_it_open():
    pod, _ = ledger()
    own = budget("ledger", "vms", LABELS, 3, available=2)
    own["status"] |= {"currentHealthy": 1, "disruptionsAllowed": 0}
    vm = lost(capi(machine(LONG)), pod, own)
    assert vm.outcome == "unknown"
    assert (
        "is being deleted for 64 min, and it is not known whether the drain of Machine "
        "machine-n1 ends"
    ) in vm.reason


def test_a_deletion_without_a_known_cause_that_lasts_too_long_leaves_it_open():
    waits = {"type": "Deleting", "status": "True", "reason": "WaitingForInfrastructureDeletion"}
    vm = lost(capi(machine(LONG, [waits])))
    assert vm.outcome == "unknown"
    assert (
        "why Machine machine-n1 is being deleted for 64 min (WaitingForInfrastructureDeletion)"
        in vm.reason
    )


@pytest.mark.parametrize("platform", UNDRAINED)
@pytest.mark.parametrize(
    ("deleted", "since", "outcome"), [(LONG, None, "never restarts"), (SHORT, JUST_LOST, "unknown")]
)
def test_a_hook_that_stays_holds_the_machine(platform, deleted, since, outcome):
    note = {"pre-drain.delete.hook.machine.cluster.x-k8s.io/move-storage": "storage-team"}
    hook = {"name": "move-storage", "owner": "storage-team"}
    own = (
        capi(machine(deleted, notes=note))
        if platform == "cluster.x-k8s.io"
        else openshift(deleted, hooks=[hook])
    )
    vm = lost(own, since=since)
    assert vm.outcome == outcome
    assert "move-storage of storage-team" in vm.reason
    if outcome == "never restarts":
        assert (
            "waits for the pre-drain hook move-storage of storage-team, which no time-out ends"
            in vm.reason
        )
        assert "ask the owner of the hook why it stays: kubectl describe" in vm.remedy


def reporting(own):
    """Return what becomes of the VM of a node that is lost now."""
    items = cluster(vms=[("web", "n1")]) + own
    seen = Snapshot(map(Object, items), ["*"], server_version="v1.33.4", time=ago())
    (one,) = outages(Question(nodes=("n1",)), seen).outages
    return one


HOOK = {"notes": {"pre-drain.delete.hook.machine.cluster.x-k8s.io/backup": "velero"}}
GOES_ON = [{"type": "Deleting", "status": "True", "reason": "WaitingForInfrastructureDeletion"}]


@pytest.mark.parametrize(
    ("deleted", "changed", "outcome", "low"),
    [
        (LONG, HOOK, "never restarts", None),
        (LONG, HOOK | {"nodeDrainTimeout": "2h"}, "never restarts", None),
        (SHORT, HOOK | {"nodeDrainTimeout": "2h"}, "unknown", None),
        (SHORT, {"nodeDrainTimeout": "5m"}, "restarts", 180),
        (SHORT, {"nodeDrainTimeout": "1m"}, "restarts", 50),
        (SHORT, {"nodeDrainTimeout": "5m", "conditions": GOES_ON}, "restarts", 50),
    ],
)
def test_a_machine_under_deletion_whose_node_is_lost_later_waits_for_no_check(
    deleted, changed, outcome, low
):
    one = reporting(capi(machine(deleted, **changed)))
    (vm,), (actor,) = one.vms, one.actors
    assert vm.outcome == outcome
    since = f"Machine machine-n1 is being deleted for {deleted['minutes']} min"
    if outcome == "unknown":
        assert vm.reason.startswith(since)
        assert "whether its owner removes hook backup of velero" in vm.reason
    elif low is None:
        assert since in vm.reason
        assert "waits for the pre-drain hook backup of velero, which no time-out ends" in vm.reason
        assert "ask the owner of the hook why it stays: kubectl describe" in vm.remedy
    else:
        assert since in vm.reason
        assert "acts" not in vm.reason
        assert actor.check == "the deletion of Machine machine-n1"
        assert [part.what for part in actor.parts] == ["detected", "remediated", "pod gone"]
        assert actor.at.low == low + 40
        assert not vm.from_now


def test_a_limit_of_the_check_does_not_stop_a_deletion_that_has_begun():
    own = capi(machine(SHORT))
    only(own, "MachineHealthCheck", "workers")["spec"]["maxUnhealthy"] = 0
    assert lost(own, since=JUST_LOST).outcome == "restarts"


@pytest.mark.parametrize(
    ("protected", "timeout", "outcome"),
    [
        ({}, None, "never restarts"),
        ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, None, "restarts"),
        ({}, "5m", "restarts"),
    ],
)
def test_a_pod_that_nothing_may_end_holds_also_the_drain_of_a_node_that_is_lost_later(
    protected, timeout, outcome
):
    own = cluster_api.machine("machine-n1", "n1")
    own["spec"] |= {"nodeDrainTimeout": timeout} if timeout else {}
    pod, guard = ledger(**protected)
    items = cluster(vms=[("web", "n1")]) + capi(own) + [pod, guard]
    seen = Snapshot(map(Object, items), ["*"], server_version="v1.33.4", time=ago())
    (one,) = outages(Question(nodes=("n1",)), seen).outages
    assert one.vms[0].outcome == outcome
    if outcome == "never restarts":
        assert (
            "the drain of the dead node never ends: nothing deletes pod vms/ledger-0"
            in one.vms[0].reason
        )
        assert "set nodeDrainTimeout of MachineDeployment workers" in one.vms[0].remedy


@pytest.mark.parametrize(
    ("since", "outcome"), [({"minutes": 72}, "unknown"), ({"minutes": 9}, "restarts")]
)
def test_a_check_that_should_have_acted_long_ago_leaves_it_open(since, outcome):
    vm = lost(capi(cluster_api.machine("machine-n1", "n1")), since=since)
    assert vm.outcome == outcome
    late = (
        "why MachineHealthCheck workers has not deleted Machine machine-n1, whose node has been "
        "lost for 72 min"
    )
    assert vm.unseen == ((late,) if outcome == "unknown" else ())


def bare_metal(*, asked=True, error="registration error", on=True):
    """Return a check that leaves remediation to the power of the host of n1."""
    *found, check = losses.machines("n1", "n2", "n3")
    check["metadata"]["annotations"] = {
        "machine.openshift.io/remediation-strategy": "external-baremetal"
    }
    host = losses.manifest(
        "metal3.io/v1alpha1",
        "BareMetalHost",
        "host-1",
        "openshift-machine-api",
        metadata={
            "annotations": {"reboot.metal3.io/capbm-requested-power-off": ""} if asked else {}
        },
        spec={
            "bmc": {"address": "ipmi://root:calvin@10.0.0.1", "credentialsName": "bmc-1"},
            "consumerRef": {"kind": "Machine", "name": "machine-n1"},
        },
        status={
            "operationalStatus": "error" if error else "OK",
            "errorType": error,
            "errorMessage": "IPMI call failed: https://root:calvin@10.0.0.1/x?key=calvin: 401.",
            "poweredOn": on,
        },
    )
    return [*found, check, host]


def test_a_host_that_is_not_powered_off_holds_its_remediation():
    vm = lost(bare_metal(), since={"minutes": 47})
    assert vm.outcome == "never restarts"
    says = "is asked to power off, and is not confirmed to be off: registration error (IPMI call"
    assert f"BareMetalHost openshift-machine-api/host-1 {says}" in vm.reason
    assert vm.remedy.startswith("restore the BMC of n1 (ipmi://10.0.0.1), or correct its address")
    assert "calvin" not in f"{vm.reason}{vm.remedy}"
    assert "; or, as a decision, confirm that n1 is powered off, then: kubectl taint" in vm.remedy


@pytest.mark.parametrize("minutes", [40, 1])
def test_what_a_request_to_power_off_does_to_a_node_that_is_ready(minutes):
    items = cluster(vms=[("web", "n1")]) + bare_metal()
    ready = only(items, "Node", "n1")["status"]["conditions"]
    for each in (each for each in ready if each["type"] == "Ready"):
        each |= {"status": "True", "lastTransitionTime": ago(minutes=minutes)}
        each["lastHeartbeatTime"] = ago()
    seen = Snapshot(map(Object, items), ["*"], server_version="v1.33.4", time=ago())
    found = failed_remediations.of_any("n1", seen)
    key = "reboot.metal3.io/capbm-requested-power-off"
    first = f"take the annotation {key} off BareMetalHost host-1" if minutes > 5 else "restore"
    assert found.remedy.startswith(first)
    last = "only then restore the BMC" if minutes > 5 else "which then powers off the running node"
    assert last in found.remedy


def test_an_error_of_a_host_that_is_not_to_be_off_may_pass():
    vm = lost(bare_metal(asked=False, error="power management error"), since={"minutes": 9})
    assert vm.outcome == "unknown"
    host = "whether BareMetalHost openshift-machine-api/host-1 can be powered off"
    assert vm.unseen[0].startswith(f"{host}: its BMC reports power management error (IPMI call")


@pytest.mark.parametrize(
    ("host", "minutes", "outcome"),
    [
        ({"error": ""}, 9, "restarts"),
        ({"error": ""}, 47, "unknown"),
        ({"error": "servicing error", "asked": False}, 9, "restarts"),
    ],
    ids=["in time", "its time is over", "an error that is not of its power"],
)
def test_a_host_that_may_be_powered_off(host, minutes, outcome):
    vm = lost(bare_metal(**host), since={"minutes": minutes})
    assert vm.outcome == outcome
    late = (
        "why MachineHealthCheck workers has not freed the pods of n1, which has been lost for "
        "47 min"
    )
    assert vm.unseen == ((late,) if outcome == "unknown" else ())


def controller(image):
    """Return the controller of Cluster API with an image of that tag."""
    template = {"spec": {"containers": [{"name": "manager", "image": image}]}}
    return losses.manifest(
        "apps/v1",
        "Deployment",
        "capi-controller-manager",
        "capi-system",
        spec={"replicas": 1, "template": template},
    )


def release(tag):
    return controller(f"registry.k8s.io/cluster-api/cluster-api-controller:{tag}")


def with_long_grace(*parts, strategy="LiveMigrate", minutes=30, attached=0):
    """Return what becomes of the VM whose launcher ends in so many minutes by its grace period."""
    items = cluster_with(*parts)
    launcher = only(items, "Pod", "virt-launcher-web-k2x7q")
    launcher["metadata"] |= {
        "deletionTimestamp": ago(minutes=-minutes),
        "deletionGracePeriodSeconds": 3630,
    }
    only(items, "VirtualMachineInstance", "web")["spec"]["evictionStrategy"] = strategy
    status = only(items, "Node", "n1")["status"]
    status["volumesAttached"] = [{"name": f"csi^{each}"} for each in range(attached)]
    seen = Snapshot(map(Object, items), ["*"], server_version="v1.33.4", time=ago())
    (one,) = outages(Question(nodes=("n1",)), seen).outages
    return one.vms[0]


@pytest.mark.parametrize(
    ("tag", "strategy", "minutes", "low"),
    [
        ("v1.7.3", "LiveMigrate", 30, 35 * 60),
        ("v1.7.3", "None", 30, 35 * 60),
        ("v1.7.3", "None", -4, 60),  # over, but not for five minutes
        ("v1.7.4", "LiveMigrate", 30, 30 * 60 + 1),  # KubeVirt refuses a second eviction
        ("v1.7.4", "None", 30, 0),
        ("v1.8.12", "None", 30, 0),
        ("v1.9.0", "None", 30, 30 * 60 + 1),  # it evicts no pod twice
        ("v1.13.0", "None", -4, 0),
        ("latest", "None", 30, 0),
        ("latest", "LiveMigrate", 30, 30 * 60 + 1),
    ],
)
def test_a_grace_period_holds_the_drain_of_a_dead_node_by_the_release(tag, strategy, minutes, low):
    vm = with_long_grace(capi(machine(SHORT)), release(tag), strategy=strategy, minutes=minutes)
    assert vm.outcome == "restarts"
    assert vm.at.low == low + 60
    says = "its drain waits until" in vm.reason and "for pod vms/virt-launcher-web-" in vm.reason
    assert says is bool(low)
    assert ("nodeDrainTimeout is not set" in vm.reason) is bool(low)


def test_a_drain_time_out_ends_the_wait_for_a_grace_period():
    vm = with_long_grace(capi(machine(SHORT, nodeDrainTimeout="5m")), release("v1.9.0"))
    assert (vm.outcome, vm.at.low) == ("restarts", 240)
    assert "waits until" not in vm.reason
