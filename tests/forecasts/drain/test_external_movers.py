"""The controller outside KubeVirt that moves a VM with the eviction strategy External."""

import pytest

from tests.builders import complete, manifest
from tests.forecasts.drain.test_control_path import NODES, drained, guest, machine
from tests.forecasts.drain.vm_motion import ago
from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.external import acting_owners, external_movers
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.drain.workload_updates import EVICT, Reach
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.drain import report

LABELS = {
    "capk.cluster.x-k8s.io/kubevirt-machine-name": "w-0",
    "capk.cluster.x-k8s.io/kubevirt-machine-namespace": "tenants",
}
HOSTED, PROVIDER = ("tenants", "capi-provider"), ("capk-system", "capk-controller-manager")


def worker(labels=LABELS, ready="True"):
    conditions = [{"type": "Ready", "status": ready}]
    found = guest("db", "External", conditions=conditions)
    found.data["metadata"]["labels"] = labels
    return found


def deployment(namespace, name, ready=1):
    return manifest("apps/v1", "Deployment", name, namespace, status={"readyReplicas": ready})


def capi(paused=False, reference="w-0", cluster="c"):
    group = "cluster.x-k8s.io/v1beta1"
    spec = {"clusterName": "c", "infrastructureRef": {"kind": "KubevirtMachine", "name": reference}}
    return (
        manifest(group, "Machine", "m-0", "tenants", spec=spec),
        manifest(group, "Cluster", cluster, "tenants", spec={"paused": paused}),
    )


@pytest.mark.parametrize("provider", [HOSTED, PROVIDER])
def test_a_provider_that_runs_moves_its_vm(provider):
    found = drained(worker(), machine("db"), *capi(), deployment(*provider))
    (row,) = found.forecasts
    assert row.outcome is VmOutcome.RESTARTS
    assert (
        f"(Deployment {provider[0]}/{provider[1]}) drains its guest node for at most" in row.reason
    )
    assert found.drainable is True
    off = drained(worker(), machine("db", "Manual"), *capi(), deployment(*provider))
    assert off.forecasts[0].outcome is VmOutcome.STOPS


def draining(reason, message):
    told = {"type": "DrainingSucceeded", "status": "False", "reason": reason, "message": message}
    return {"conditions": [told]}


REFUSED = "Drain not completed yet: * Pod web/a: cannot evict pod as it would violate the budget"


@pytest.mark.parametrize(
    ("asked", "strategy", "hook", "status", "leaves"),
    [
        (200, "External", "", {}, True),
        (200, "External", "", draining("Draining", "* Pod web/a: deletionTimestamp set"), True),
        (7200, "External", "", {}, False),
        (200, "LiveMigrate", "", {}, False),
        (200, "External", "pre-drain", {}, False),
        (200, "External", "pre-terminate", {}, False),
        (200, "External", "", draining("DrainingFailed", "the API does not answer"), False),
        (200, "External", "", draining("Draining", REFUSED), False),
    ],
)
def test_a_vm_whose_machine_is_being_deleted_does_not_start_again(
    asked, strategy, hook, status, leaves
):
    (leaving, guests) = capi()
    hooks = {f"{hook}.delete.hook.machine.cluster.x-k8s.io/backup": "x"} if hook else {}
    leaving.data["metadata"] |= {"deletionTimestamp": ago(asked), "finalizers": ["x"]}
    leaving.data["metadata"]["annotations"] = hooks
    leaving.data["status"] = status
    subject = worker()
    subject.data["spec"]["evictionStrategy"] = strategy
    objects = [*NODES, subject, machine("db"), leaving, guests, deployment(*PROVIDER)]
    (row,) = plan(Snapshot(objects, complete=["*"], time=ago(0)), "a").nodes[0].forecasts

    said = "Machine tenants/m-0 is being deleted, and its VM with it"
    assert (row.removed, row.reason == said) == (leaves, leaves)
    assert (row.outcome is VmOutcome.STOPS) is leaves


@pytest.mark.parametrize(
    "objects",
    [
        (worker(), *capi()),
        (worker(), *capi(), deployment(*HOSTED, ready=0)),
        (worker(), *capi(), deployment("other-tenant", "capi-provider")),
        (worker(ready="False"), *capi(), deployment(*HOSTED)),
        (worker(), deployment(*HOSTED)),
        (worker(), *capi(reference="w-1"), deployment(*HOSTED)),
        (worker(), *capi(paused=True), deployment(*HOSTED)),
        (worker(), *capi(cluster="other"), deployment(*HOSTED)),
    ],
    ids=["none", "down", "of others", "guest", "no Machine", "another", "paused", "no cluster"],
)
def test_whether_a_provider_acts_is_not_known(objects):
    found = drained(machine("db"), *objects)
    assert (found.forecasts[0].outcome, found.drainable) == (VmOutcome.UNKNOWN, None)


@pytest.mark.parametrize("marked", [None, "a", "b"])
def test_a_controller_is_to_act_before_a_drain_unless_one_has_begun(marked):
    vmi = worker()
    vmi.data["status"]["evacuationNodeName"] = marked
    remedy = drained(machine("db"), vmi).forecasts[0].remedy
    assert remedy.startswith("see that its controller acts") is (marked is not None)
    assert remedy.startswith("before a drain of its node, see that its") is (marked is None)


OF_CLUSTER = LABELS | {"cluster.x-k8s.io/cluster-name": "c"}


def test_nothing_moves_the_vm_of_a_machine_that_is_gone():
    found = drained(worker(OF_CLUSTER), *capi(reference="w-1"), deployment(*HOSTED))
    (row,) = found.forecasts

    assert found.drainable is False
    assert row.reason == (
        "External: nothing moves it, as no Machine of cluster c is of KubevirtMachine tenants/w-0 "
        "any more"
    )
    assert row.remedy.startswith("migrate it by hand: virtctl migrate db -n shop; or, as a ")
    assert "delete it after checking that its guest" in row.remedy


def test_a_vm_of_a_machine_that_is_gone_is_stopped_if_it_cannot_migrate():
    vmi = worker(OF_CLUSTER)
    vmi.data["status"]["conditions"].append({"type": "LiveMigratable", "status": "False"})
    (row,) = drained(vmi, machine("db"), *capi(reference="w-1"), deployment(*HOSTED)).forecasts

    assert row.remedy.startswith("stop it for the drain: virtctl stop db -n shop; or, as a ")


def test_machines_are_gone_through_once_for_all_vms():
    class Counting(Snapshot):
        asked = 0

        def known(self, kind, namespace=None):
            self.asked += kind is CAPI_MACHINE
            return super().known(kind, namespace)

    cluster = Counting([worker(OF_CLUSTER), *capi(reference="w-1")], complete=["*"])
    (vmi,) = cluster.known(VMI)
    assert all(external_movers.gone(vmi, cluster) for _ in range(5))
    assert cluster.asked < 5


@pytest.mark.parametrize(
    "objects",
    [
        (worker(OF_CLUSTER), deployment(*HOSTED)),
        (worker(OF_CLUSTER | {"cluster.x-k8s.io/cluster-name": "b"}), *capi(reference="w-1")),
        (worker(OF_CLUSTER), *capi(paused=True)),
    ],
    ids=["Cluster API runs elsewhere", "Machines of another cluster", "its Machine is here"],
)
def test_a_machine_may_be_elsewhere(objects):
    found = drained(machine("db"), *objects)
    assert "nothing moves it" not in found.forecasts[0].reason


def test_a_mark_of_the_owner_may_name_a_controller():
    vm = machine("db")
    vm.data["metadata"]["labels"] = {"ops.example.org/agent": "failover"}
    (row,) = drained(worker({}), vm).forecasts
    assert row.outcome is VmOutcome.UNKNOWN
    assert "perhaps a controller that uses label ops.example.org/agent; whether" in row.reason
    vm.data["metadata"]["labels"] = {"argocd.argoproj.io/instance": "x", "note": "y"}
    assert drained(worker({}), vm).forecasts[0].outcome is VmOutcome.BLOCKS


@pytest.mark.parametrize(
    ("run", "objects", "reach", "words"),
    [
        ("Always", (*capi(), deployment(*HOSTED)), Reach.RESTARTED, "drains its guest node"),
        ("Manual", (*capi(), deployment(*HOSTED)), Reach.STOPPED, "drains its guest node"),
        ("Always", capi(), Reach.UNKNOWN, "has to move it"),
    ],
)
def test_an_update_is_forecast_as_a_drain(run, objects, reach, words):
    vmi = worker()
    vmi.data["status"]["conditions"].append({"type": "LiveMigratable", "status": "False"})
    found = workload_updates.update(vmi, {EVICT}, complete(vmi, machine("db", run), *objects))
    assert found.reach is reach
    assert words in found.reason


GROUP = "vnf.example.net/v1"
ASKED = "VMI shop/db is asked to leave a; draining sessions"


def owned(
    message=ASKED,
    *,
    age=120,
    node="a",
    kind="VirtualNetworkFunction",
    mark=True,
    name="db",
    owner="upf",
    **more,
):
    """Return a VM with External whose owner says something, its VMI, and that owner."""
    vm, vmi = machine(name), guest(name, "External", evacuationNodeName=node)
    reference = {"apiVersion": GROUP, "kind": kind, "name": owner, "controller": True}
    labels = {"vnf.example.net/name": "upf"} if mark else {}
    vm.data["metadata"] |= {"ownerReferences": [reference], "labels": labels}
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "EvacuationRequested",
        "message": message,
        "lastTransitionTime": ago(age),
    }
    status = {"conditions": [condition]}
    spec = {"virtualMachine": owner, "drain": "Graceful"}
    parts = {"status": status, "spec": spec} | more
    return vm, vmi, manifest(GROUP, "VirtualNetworkFunction", owner, "shop", **parts)


def judged(*objects):
    cluster = Snapshot([*NODES, *objects], complete=["*"], time=ago(0))
    return plan(cluster, "a")


@pytest.mark.parametrize("mark", [True, False])
def test_the_owner_of_a_vm_says_that_it_is_being_moved(mark):
    found = judged(*owned(mark=mark))
    (row,) = found.nodes[0].forecasts
    assert (row.outcome, found.drainable) == (VmOutcome.RESTARTS, True)
    assert row.reason == (
        "External: its owner VirtualNetworkFunction shop/upf moves it now: EvacuationRequested: "
        f"{ASKED} (for 2 min); runStrategy Always"
    )


@pytest.mark.parametrize(
    "objects",
    [
        owned(age=7200),
        owned("VMI shop/db cannot leave a: the peer is down"),
        owned("VMI shop/db is asked to leave b"),
        owned("VMI shop/db-2 is asked to leave a"),
        owned("VMI shop/db is not asked to leave a"),
        owned("VMI shop/db waits for the approval of its move from a"),
        owned("Active"),
        owned(node=None),
        owned()[:2],
        owned(kind="Other"),
    ],
    ids=[
        "old",
        "fails",
        "node",
        "another VM",
        "done",
        "approval",
        "nothing",
        "not asked",
        "unread",
        "another owner",
    ],
)
def test_an_owner_does_not_show_that_it_acts(objects):
    found = judged(*objects)
    (row,) = found.nodes[0].forecasts
    assert (row.outcome, found.drainable) == (VmOutcome.UNKNOWN, None)
    assert "perhaps the controller of its owner" in row.reason
    assert "its controller acts on status.evacuationNodeName" in row.remedy
    assert report.verdict(found).sentence == (
        "whether the controller outside KubeVirt moves 1 VM is not known, so a drain may be "
        "blocked."
    )


def sibling(message="Active", **changes):
    """Return a VM with an owner of the same kind, of which nothing has asked yet."""
    return owned(message, **({"node": None, "name": "web", "owner": "upf-2"} | changes))


def lasting(reason, message="Active", kind="Ready", status="False", age=10_800):
    """Return what an owner says, three hours old."""
    since = {"lastTransitionTime": ago(age)}
    told = {"type": kind, "status": status, "reason": reason, "message": message} | since
    return {"conditions": [told]}


def of_sibling(*objects):
    found = judged(*objects)
    return next(row for row in found.nodes[0].forecasts if row.vmi.name == "web")


def test_the_controller_that_moves_one_vm_moves_another_of_the_same_kind_of_owner():
    row = of_sibling(*owned(), *sibling())
    assert row.outcome is VmOutcome.RESTARTS
    assert row.reason == (
        "External: its owner has to move it, as VirtualNetworkFunction shop/upf of the same kind "
        f"does now: EvacuationRequested: {ASKED} (for 2 min); runStrategy Always"
    )


@pytest.mark.parametrize(
    "objects",
    [
        [*owned(age=1800), *sibling()],
        [*owned("VMI shop/db cannot leave a"), *sibling()],
        [*owned(), *sibling(kind="Other")],
        [*owned(), *sibling(spec={"virtualMachine": "upf-2", "drain": "Manual"})],
        [*owned(), *sibling(metadata={"annotations": {"vnf.example.net/paused": "true"}})],
        [*owned(), *sibling()[:2]],
        list(sibling()),
    ],
    ids=["long ago", "fails", "another kind", "other spec", "paused", "unread", "alone"],
)
def test_what_a_controller_does_for_others_says_nothing_of_this_one(objects):
    assert of_sibling(*objects).outcome is VmOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"status": lasting("EvacuationFailed")}, VmOutcome.UNKNOWN),
        ({"status": lasting("Reported", kind="Stuck", status="True")}, VmOutcome.UNKNOWN),
        ({"status": lasting("Draining", "VMI shop/web is to leave")}, VmOutcome.UNKNOWN),
        ({"status": lasting("Draining", "a is drained")}, VmOutcome.UNKNOWN),
        ({"status": lasting("Running"), "node": "a"}, VmOutcome.UNKNOWN),
        ({"status": lasting("Running"), "node": None}, VmOutcome.RESTARTS),
        ({"status": lasting("Reported", kind="Stuck")}, VmOutcome.RESTARTS),
        ({"status": lasting("Draining", "VMI shop/web-2 is to leave b")}, VmOutcome.RESTARTS),
        ({"status": lasting("Draining", "VMI shop/web is to leave", age=600)}, VmOutcome.RESTARTS),
        ({"status": lasting("Draining", age=120), "node": "a"}, VmOutcome.RESTARTS),
    ],
)
def test_what_the_own_owner_of_a_vm_says_counts_before_that_of_others(changes, outcome):
    assert of_sibling(*owned(), *sibling(**changes)).outcome is outcome


def test_the_owners_that_move_a_vm_are_compared_once_for_all_others():
    class Counted(Object):
        asked = 0

        def __getitem__(self, key):
            Counted.asked += key == "spec"
            return super().__getitem__(key)

    items = []
    for number in range(20):
        name = f"db-{number}"
        vm, vmi, owner = owned(f"VMI shop/{name} is to leave a", name=name, owner=f"upf-{name}")
        items += [vm, vmi, Counted(owner.data, "shop")]
    own = sibling(spec={"drain": "Manual"})
    cluster = Snapshot([*items, *own], complete=["*"], time=ago(0))
    assert not any(acting_owners.of_sibling(own[1], cluster) for _ in range(5))
    assert Counted.asked == 20


ACTS = "see that its controller acts on status.evacuationNodeName"
DELETE = (
    "; or, as a decision, delete its Machine, if it is a node of a guest cluster and a MachineSet "
    "or control plane replaces it"
)
STOP = "; or, as a decision, stop it: virtctl stop db -n shop"


def test_a_vm_that_nothing_moves_is_stopped_only_as_a_decision():
    (row,) = drained(worker({}), machine("db")).forecasts
    assert row.outcome is VmOutcome.BLOCKS
    assert row.remedy == f"{ACTS}{DELETE}{STOP}"


@pytest.mark.parametrize(
    ("migratable", "others", "way"),
    [
        ("True", [], "; or migrate it by hand: virtctl migrate db -n shop"),
        ("False", [], ""),
        ("True", ["machine-controller-1"], "; or migrate it by hand: virtctl migrate db -n shop"),
    ],
)
def test_a_vm_without_a_known_mover_is_migrated_by_hand_if_it_can(migratable, others, way):
    vmi = hosted(labels={}, migratable=migratable)
    found = drained(vmi, machine("db"), *(manifest("v1", "Pod", name, "x") for name in others))
    (row,) = found.forecasts
    assert row.remedy == f"{ACTS}{DELETE}{way}{STOP}"
    assert "no label or owner of it names a known controller" in row.reason
    assert ("no pod of one runs here" in row.reason) is not others


POOL = LABELS | {"hypershift.openshift.io/nodePoolName": "np"}


def hosted(labels=POOL, strategy="External", migratable="True"):
    found = worker(labels)
    found.data["spec"]["evictionStrategy"] = strategy
    found.data["status"]["conditions"].append({"type": "LiveMigratable", "status": migratable})
    return found


def not_migratable(*objects, owner="MachineSet", labels=None, notes=None):
    """Return the first problem of a worker with a GPU under LiveMigrate, whose drain is refused."""
    subject = worker()
    subject.data["spec"]["evictionStrategy"] = "LiveMigrate"
    gpu = {"type": "LiveMigratable", "status": "False", "reason": "HostDeviceNotLiveMigratable"}
    subject.data["status"]["conditions"].append(gpu)
    own, guests = capi()
    owned = {"apiVersion": own.api_version, "kind": owner, "name": "ms", "controller": True}
    own.data["metadata"] |= {"ownerReferences": [owned], "labels": labels or {}}
    own.data["metadata"] |= {"annotations": notes or {}}
    own.data["status"] = {"nodeRef": {"name": "w-node"}}
    everything = [*NODES, subject, machine("db"), own, guests, *objects]
    (row,) = plan(Snapshot(everything, complete=["*"], time=ago(0)), "a").nodes[0].forecasts
    assert row.outcome is VmOutcome.BLOCKS
    return row.remedy


@pytest.mark.parametrize(
    ("notes", "owner", "how"),
    [
        ({}, "MachineSet ms", "in its KubevirtMachineTemplate"),
        ({"hypershift.openshift.io/nodePool": "c/np"}, "NodePool c/np", "by HyperShift, as later"),
    ],
)
def test_a_worker_that_cannot_migrate_leaves_by_its_machine(notes, owner, how):
    remedy = not_migratable(notes=notes)

    assert remedy.startswith(
        "cordon a (kubectl cordon a), drain node w-node of its guest cluster c there, then delete "
        f"its Machine, in whose place {owner} makes another one with a new VM: kubectl delete "
        "machines.cluster.x-k8s.io m-0 -n "
    )
    assert f"once its VMs get evictionStrategy External {how}" in remedy
    assert "LiveMigrateIfPossible" not in remedy


def test_a_host_that_is_cordoned_is_not_cordoned_again():
    host = Object(next(each for each in NODES if each.name == "a").data | {})
    host.data["spec"] = {"unschedulable": True}
    assert not_migratable(host).startswith("drain node w-node")


@pytest.mark.parametrize(
    "change", [{"owner": "KubeadmControlPlane"}, {"labels": {"cluster.x-k8s.io/control-plane": ""}}]
)
def test_a_machine_that_is_not_made_again_is_not_deleted(change):
    assert "kubectl delete" not in not_migratable(**change)
