"""A roll-out of Cluster API whose new Machine does not become a Node."""

import pytest

from tests.builders import manifest, node
from tests.work import measured
from virt_admit.forecasts.repair import judging
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.forecasts.upgrade import rehearsal, rollouts
from virt_admit.forecasts.upgrade.pools import updater_pods, waiting_machines
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE
from virt_admit.model.kubernetes.objects import Object

CAPI = "cluster.x-k8s.io/v1beta2"
NOW, LONG, SHORT = "2026-01-01T12:00:00Z", "2026-01-01T08:40:00Z", "2026-01-01T11:30:00Z"
LABELS = {"cluster.x-k8s.io/deployment-name": "md", "cluster.x-k8s.io/cluster-name": "prod"}
OF_POOL = {"owner-kind": "MachinePool", "owner-name": "mp", "cluster-namespace": "fleet"}
NO_HOST = {
    "type": "InfrastructureReady",
    "status": "False",
    "reason": "NotReady",
    "message": "No available\n host found.",
}


def machine(
    name, on=None, *, new=False, since=LONG, conditions=(), labels=LABELS, metadata=None, **status
):
    metadata = {"labels": labels, "creationTimestamp": since} | (metadata or {})
    status["conditions"] = [{"type": "UpToDate", "status": str(new)}, *conditions]
    if on:
        status["nodeRef"] = {"name": on}
    return manifest(CAPI, "Machine", name, "fleet", metadata=metadata, status=status)


def deployment(surge=1, missing=0, **spec):
    spec |= {
        "replicas": 3,
        "rollout": {"strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": missing}}},
    }
    rolling = [{"type": "RollingOut", "status": "True"}]
    return manifest(
        CAPI, "MachineDeployment", "md", "fleet", spec=spec, status={"conditions": rolling}
    )


def waiting(name="m-new", conditions=(NO_HOST,), **fields):
    return machine(name, new=True, conditions=conditions, **fields)


def rehearse(*objects, time=NOW, old="abc", unread=()):
    own = [machine(f"m-{name}", name) for name in old]
    cluster = Snapshot(
        [*(node(name, runs_vms=False) for name in "abc"), *own, *objects],
        complete=["*"],
        time=time,
        unreadable=unread,
    )
    return rehearsal.rehearse(cluster, Options(), forecast_only=True)


def test_no_old_machine_is_deleted_while_the_new_one_finds_no_host():
    found = rehearse(deployment(), waiting())
    assert found.possible is False
    (stop,) = found.stops
    assert stop.reason == (
        "Machine fleet/m-new has no node for 3 h 20: InfrastructureReady is False: NotReady: No "
        "available host found. MachineDeployment fleet/md deletes no old Machine before that one "
        "is available"
    )
    assert "If 1 node may be missing meanwhile, set maxSurge 0 and maxUnavailable 1" in stop.remedy
    assert "kubectl describe machines.cluster.x-k8s.io m-new -n fleet" in stop.remedy
    assert str(stop.problem) == "MachineWaits:fleet/m-new"


@pytest.mark.parametrize(
    ("conditions", "fields", "words"),
    [
        (
            [
                {"type": "BootstrapReady", "status": "False", "reason": "WaitingForDataSecret"},
                NO_HOST,
            ],
            {},
            "BootstrapReady is False",
        ),
        (
            [{"type": "InfrastructureReady", "status": "True"}],
            {},
            "has no node for 3 h 20. MachineDeployment",
        ),
        (
            [{"type": "NodeHealthy", "status": "Unknown", "reason": "NodeProvisioning"}],
            {},
            "NodeHealthy is Unknown: NodeProv",
        ),
        (
            [],
            {"v1beta2": {"conditions": [NO_HOST]}},
            "InfrastructureReady is False: NotReady: No available host",
        ),
        (
            [],
            {"failureReason": "CreateError", "failureMessage": "no quota"},
            "20: CreateError: no quota. MachineD",
        ),
        (
            [],
            {"deprecated": {"v1beta1": {"failureMessage": "no quota"}}},
            "has no node for 3 h 20: no quota",
        ),
    ],
)
def test_what_it_waits_for(conditions, fields, words):
    (stop,) = rehearse(deployment(), waiting(conditions=conditions, **fields)).stops
    assert words in stop.reason


def test_a_machine_that_failed_at_once():
    assert (
        rehearse(deployment(), waiting(since=SHORT, failureReason="InvalidConfiguration")).possible
        is False
    )


@pytest.mark.parametrize(
    "objects",
    [
        [deployment(), waiting(since=SHORT)],
        [deployment(), machine("m-new", "a", new=True)],
        [deployment(), waiting(labels={"cluster.x-k8s.io/cluster-name": "other"})],
        [deployment(), waiting(metadata={"deletionTimestamp": NOW})],
    ],
    ids=["starting", "joined", "of another cluster", "being deleted"],
)
def test_what_does_not_hold_it(objects):
    assert rehearse(*objects).possible is True


def test_machines_that_start_slowly_here_have_more_time():
    """The other Machines needed 40 minutes, so this one is late after 80."""
    slow = [
        manifest("v1", "Node", name, metadata={"creationTimestamp": "2026-01-01T09:20:00Z"})
        for name in "abc"
    ]
    for minutes, possible in ((70, True), (90, False)):
        since = f"2026-01-01T{12 - (minutes + 59) // 60:02}:{(-minutes) % 60:02}:00Z"
        own = [machine(f"m-{name}", name) for name in "abc"]
        cluster = Snapshot(
            [*slow, *own, deployment(), waiting(since=since)], complete=["*"], time=NOW
        )
        assert rehearsal.rehearse(cluster, Options(), forecast_only=True).possible is possible


@pytest.mark.parametrize(
    "objects",
    [
        # an old Machine may be deleted, which may free what it waits for
        [deployment(missing=1), waiting()],
        # another new Machine may become available
        [deployment(surge=2), waiting(), waiting("m-2", since=SHORT)],
        # of the control plane
        [deployment(), waiting(metadata={"labels": {"cluster.x-k8s.io/cluster-name": "prod"}})],
    ],
    ids=["one may be missing", "another one starts", "of another pool"],
)
def test_what_may_hold_it(objects):
    found = rehearse(*objects)
    assert (found.possible, found.stops) == (None, ())
    assert "Machine fleet/m-new has no node for 3 h 20" in found.unseen[0]


def test_the_time_is_not_known():
    found = rehearse(deployment(), waiting(), time=None)
    assert (found.possible, found.stops) == (None, ())
    assert "Machine fleet/m-new has no node: InfrastructureReady is False" in found.unseen[0]


def test_plan_names_the_machine():
    own = [machine(f"m-{name}", name) for name in "abc"]
    nodes = [node(name, runs_vms=False) for name in "abc"]
    found = judging.judge(
        Goal.UPGRADE, Snapshot([*nodes, *own, deployment(), waiting()], complete=["*"], time=NOW)
    )
    (problem,) = found.problems
    assert (problem.subject.kind, problem.subject.full_name) == (CAPI_MACHINE, "fleet/m-new")


def test_the_number_at_once_is_that_of_both_limits():
    (pool,) = rollouts.pools(
        Driver.CLUSTER_API, Snapshot([node("a"), machine("m-a", "a"), deployment()]), None, ["a"]
    )
    assert (pool.capacity, pool.limit) == (1, "maxSurge + maxUnavailable")


@pytest.mark.parametrize(
    ("driver", "says"),
    [
        (
            Driver.CLUSTER_API,
            "c is not counted: the infrastructure provider of MachinePool fleet/mp replaces it",
        ),
        (
            Driver.PLAIN,
            "the infrastructure provider of MachinePool fleet/mp decides on the order of c, and "
            "whether it drains it",
        ),
    ],
)
def test_nodes_of_a_machine_pool_are_named(driver, says):
    notes = {f"cluster.x-k8s.io/{key}": value for key, value in OF_POOL.items()}
    own = node("c", runs_vms=False)
    own.data["metadata"]["annotations"] = notes
    others = [node(name, runs_vms=False) for name in "ab"]
    machines = [machine(f"m-{name}", name, new=True) for name in "ab"]
    cluster = Snapshot([own, *others, *machines, deployment()], complete=["*"], time=NOW)
    found = rehearsal.rehearse(cluster, Options(driver, from_start=True), forecast_only=True)

    assert [each for each in found.rests_on if "MachinePool" in each] == [says]
    assert ("c" in {name for wave in found.waves for name in wave.nodes}) is (
        driver != "cluster-api"
    )
    own.data["metadata"]["annotations"]["cluster.x-k8s.io/owner-kind"] = "MachineSet"
    other = Snapshot([own, *others, *machines, deployment()], complete=["*"], time=NOW)
    again = rehearsal.rehearse(other, Options(driver, from_start=True), forecast_only=True)
    assert not any("MachinePool" in each for each in again.rests_on)


METAL = {"infrastructureRef": {"kind": "Metal3MachineTemplate", "name": "t"}}


def metal(
    *hosts,
    machines="abc",
    missing=0,
    deleted="",
    by_hand=False,
    operational="OK",
    others=(),
    labels=(),
    unread=(),
):
    """Return a rehearsal of nodes on bare metal; ``hosts``: the Machine of each; ``labels``: their
    pools.
    """
    rolled = deployment(missing=missing, template={"spec": METAL}, clusterName="prod")
    if by_hand:
        rolled.data["spec"]["rollout"] = {"strategy": {"type": "OnDelete"}}
    rolled.data["status"] = {}
    own = [machine(f"m-{name}", name if name in "abc" else None, new=True) for name in machines]
    for each in own:
        each.data["spec"] = {"infrastructureRef": {"kind": "Metal3Machine", "name": each.name}}
        if each.name == deleted:
            each.data["metadata"]["deletionTimestamp"] = SHORT
    found = [
        manifest(
            *("metal3.io/v1alpha1", "BareMetalHost", f"h-{number}", "fleet"),
            metadata={"labels": {"pool": labels[number]}} if labels else {},
            spec={"consumerRef": {"name": user}} if user else {},
            status={
                "provisioning": {"state": "provisioned" if user else "available"},
                "operationalStatus": operational,
            },
        )
        for number, user in enumerate(hosts)
    ]
    return rehearse(rolled, *own, *found, *others, old="", unread=unread)


USED = ("m-a", "m-b", "m-c")


def test_a_new_machine_comes_first_and_no_host_is_free():
    (stop,) = metal(*USED).stops
    assert stop.reason == (
        "MachineDeployment fleet/md makes a new Machine before it deletes an old one "
        "(maxUnavailable 0), and all 3 BareMetalHosts are in use"
    )
    assert stop.remedy.startswith("Add a host, or, if one node may be missing meanwhile, set max")


def plane(surge=None, kind="Metal3MachineTemplate", replicas=3):
    spec = {"machineTemplate": {"infrastructureRef": {"kind": kind}}, "replicas": replicas}
    if surge is not None:
        spec["rolloutStrategy"] = {"rollingUpdate": {"maxSurge": surge}}
    api = "controlplane.cluster.x-k8s.io/v1beta1"
    return manifest(api, "KubeadmControlPlane", "cp", "fleet", spec=spec)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (plane(), True),
        (plane(1), True),
        (plane(0), False),
        (plane(kind="VSphereMachineTemplate"), False),
    ],
)
def test_a_control_plane_that_finds_no_host_either_is_the_same_cause(found, named):
    (stop,) = metal(*USED, others=[found]).stops
    subject = (
        "MachineDeployment fleet/md and KubeadmControlPlane fleet/cp make a new Machine before"
    )
    assert stop.reason.startswith(subject) is named
    assert ("(KubeadmControlPlane: maxSurge 0)" in stop.remedy) is named


def test_a_control_plane_of_one_machine_cannot_be_without_it():
    (stop,) = metal(*USED, others=[plane(replicas=1)]).stops
    assert "KubeadmControlPlane: maxSurge 0" not in stop.remedy
    assert "(KubeadmControlPlane: fleet/cp needs a further host, as it has" in stop.remedy


def test_many_deployments_without_a_host_and_a_provider_are_described_once():
    first, own = deployment(template={"spec": METAL}, clusterName="prod"), machine("m-a", "a")
    own.data["spec"] = {"infrastructureRef": {"kind": "Metal3Machine", "name": "m-a"}}
    used = {"consumerRef": {"name": "m-a"}}
    host = manifest("metal3.io/v1alpha1", "BareMetalHost", "h", "fleet", spec=used)
    off = manifest("apps/v1", "Deployment", "capm3-controller-manager", "x", spec={"replicas": 0})
    every = [{"metadata": first.data["metadata"] | {"name": f"md-{each}"}} for each in range(1500)]
    made = [Object(first.data | each) for each in every]
    cluster = Snapshot([*made, host, own, off], complete=["*"], time=NOW)
    with measured() as work:
        hosts = [list(waiting_machines.without_machine(each, cluster)) for each in made]
        providers = [list(updater_pods.of_deployment(each, cluster)) for each in made]
    assert all(map(len, hosts))
    assert all(map(len, providers))
    assert work.seconds < 2


def test_no_host_is_one_cause_for_all_deployments():
    second = deployment(template={"spec": METAL})
    second.data["metadata"]["name"] = "other"
    second.data["status"] = {}
    own = machine("m-o", "o", new=True, labels=LABELS | {next(iter(LABELS)): "other"})
    own.data["spec"] = {"infrastructureRef": {"kind": "Metal3Machine", "name": "m-o"}}
    found = metal(*USED, "m-o", others=[second, own, node("o", runs_vms=False)])
    assert {stop.reason for stop in found.stops} == {
        "MachineDeployments fleet/md, fleet/other make a new Machine before they delete an old one "
        "(maxUnavailable 0), and all 4 BareMetalHosts are in use"
    }
    assert len({stop.remedy for stop in found.stops}) == 1


@pytest.mark.parametrize("state", ["servicing", "OK"])
def test_hosts_that_come_back_are_not_deleted_first(state):
    (stop,) = metal(*USED, operational=state).stops
    says = "or, once h-0 (servicing), h-1 (servicing), h-2 (servicing) are back and if one node"
    assert (says in stop.remedy) is (state != "OK")


@pytest.mark.parametrize(
    "given",
    [
        {"hosts": (*USED, "")},
        {"hosts": USED, "missing": 1},
        {"hosts": (*USED, "m-d"), "machines": "abcd"},
        {"hosts": USED, "deleted": "m-c"},
        {"hosts": USED, "by_hand": True},
        {"hosts": ()},
    ],
    ids=[
        *("a host is free", "an old one goes first", "surplus", "one goes", "deleted by hand"),
        "no host is known",
    ],
)
def test_a_host_is_there_for_the_next_machine(given):
    found = metal(*given.pop("hosts"), **given)
    assert not any("BareMetalHost" in stop.reason for stop in found.stops)


def template(name="t", *, expressions=(), **labels):
    selector = {"matchLabels": labels, "matchExpressions": list(expressions)}
    api = "infrastructure.cluster.x-k8s.io/v1beta1"
    spec = {"template": {"spec": {"hostSelector": selector}}}
    return manifest(api, "Metal3MachineTemplate", name, "fleet", spec=spec)


def requires(operator, *values):
    return {"key": "pool", "operator": operator, "values": list(values)}


BUSY = {"hosts": (*USED, ""), "labels": "iiik"}
SELECTED = "and all 3 BareMetalHosts that hostSelector {} selects are in use (h-3 is free, but not"


@pytest.mark.parametrize(
    ("made", "selector"),
    [
        (template(pool="i"), "pool=i"),
        (template(expressions=[requires("in", "i", "x")]), "pool In (i, x)"),
        (template(expressions=[requires("NotIn", "k")]), "pool NotIn (k)"),
    ],
)
def test_the_free_host_is_not_one_that_the_template_selects(made, selector):
    (stop,) = metal(*BUSY["hosts"], labels=BUSY["labels"], others=[made]).stops
    assert SELECTED.format(selector) in stop.reason
    assert stop.remedy.startswith(f"Add a host with {selector}, or, if one node may be missing")


def test_no_host_is_selected():
    (stop,) = metal(*BUSY["hosts"], labels="kkkk", others=[template(pool="i")]).stops
    assert (
        "and no BareMetalHost exists that hostSelector pool=i selects (h-3 is free" in stop.reason
    )


@pytest.mark.parametrize(
    ("made", "more"),
    [
        (template(), {}),
        (template(pool="k"), {}),
        (template(expressions=[requires("exists")]), {}),
        (template(expressions=[requires("gt", "5")]), {}),
        (template(pool="i"), {"missing": 1}),
        (template(pool="i"), {"machines": "abcd"}),
        (template("other", pool="i"), {}),
        (plane(), {}),
    ],
    ids=[
        *("no selector", "the free one", "an expression", "not judged", "an old one goes first"),
        *("surplus", "another template", "of a control plane, not known"),
    ],
)
def test_a_host_that_is_selected_is_free_or_may_be(made, more):
    found = metal(*BUSY["hosts"], labels=BUSY["labels"], others=[made], **more)
    assert not any("BareMetalHost" in stop.reason for stop in found.stops)


@pytest.mark.parametrize(("status", "stops"), [({}, True), ({"replicas": 4}, False)])
def test_a_control_plane_alone_finds_no_selected_host(status, stops):
    found = plane()
    ref = found.data["spec"]["machineTemplate"]["infrastructureRef"]
    ref["name"], found.data["status"] = "cp", status
    found.data["metadata"]["labels"] = {"cluster.x-k8s.io/cluster-name": "prod"}
    every = [found, template("cp", pool="c"), template(pool="k")]
    reasons = [stop.reason for stop in metal(*BUSY["hosts"], labels="ccck", others=every).stops]
    says = "KubeadmControlPlane fleet/cp makes a new Machine before it deletes an old one, and all"
    assert [reason.startswith(says) for reason in reasons] == [True] * stops


@pytest.mark.parametrize(
    ("unread", "others"),
    [
        ("baremetalhosts.metal3.io", ()),
        ("metal3machinetemplates.infrastructure.cluster.x-k8s.io", ()),
        ("metal3machinetemplates.infrastructure.cluster.x-k8s.io", (template(pool="k"),)),
    ],
)
def test_hosts_or_templates_that_cannot_be_read(unread, others):
    found = metal(*BUSY["hosts"], labels=BUSY["labels"], others=others, unread=[unread])
    assert not found.stops
    assert found.possible is (True if others else None)
