"""Operators that do not make way although their budgets look as if they did,
and the object that holds them up.
"""

import pytest

from tests.builders import endpoint_slice, manifest, webhook_configuration
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import LONGHORN, budget, node, pod
from tests.forecasts.drain.test_operator_budgets import (
    CEPH,
    COPIES,
    OSD_BUDGET,
    blocker,
    drained,
    rook_without,
    unknown,
    wait,
    without,
)
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade import simulated_world
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, VALIDATING_CONFIGURATION


def manager(of, *engines, keeper=None, **instances):
    running = {**{key: {"status": {"state": "running"}} for key in engines}, **instances}
    spec, status = {"nodeID": of}, {"ownerID": keeper or of, "instanceEngines": running}
    return manifest(
        "longhorn.io/v1beta2",
        "InstanceManager",
        f"instance-manager-{of}",
        LONGHORN,
        spec=spec,
        status=status,
    )


def engine(name, on, state="running", **status):
    spec, status = {"nodeID": on, "volumeName": "v1"}, {"currentState": state, **status}
    return manifest("longhorn.io/v1beta2", "Engine", name, LONGHORN, spec=spec, status=status)


def test_an_engine_of_a_volume_on_the_node_ends_with_the_vms():
    assert wait(world.longhorn(*COPIES, manager("a", "v1-e-0"), engine("v1-e-0", "a")))


@pytest.mark.parametrize(
    "engines", [[], [engine("v1-e-0", "b")], [engine("v1-e-0", "a", "stopped")]]
)
def test_an_orphaned_engine_keeps_the_budget(engines):
    found = blocker(world.longhorn(*COPIES, manager("a", "v1-e-0"), *engines))
    assert (found["now"], "still runs engine v1-e-0" in found["reason"]) == (True, True)
    assert found["remedy"].startswith("Ask again once a has been cordoned for 10 minutes")
    assert "kubectl exec" not in found["remedy"]


def test_an_orphaned_engine_of_the_v2_data_engine_is_no_process():
    runs = {"spec": {"dataEngine": "v2"}, "status": {"state": "running"}}
    found = blocker(world.longhorn(*COPIES, manager("a", **{"v1-e-0": runs})))
    assert found["remedy"].startswith("Update Longhorn")


def test_an_engine_whose_object_is_gone_may_serve_its_volume():
    objects = [*COPIES, manager("a", "v1-e-0"), world.volume("v1", 2, "a")]
    assert wait(world.longhorn(*objects))


def test_an_engine_that_starts_is_not_orphaned():
    starts = engine("v1-e-0", "a", "stopped")
    starts.data["spec"]["desireState"] = "running"
    assert wait(world.longhorn(*COPIES, manager("a", "v1-e-0"), starts))


def test_an_engine_that_is_leaving_the_instance_manager_is_not_orphaned():
    leaving = engine("v1-e-0", "b", instanceManagerName="instance-manager-a")
    assert wait(world.longhorn(*COPIES, manager("a", "v1-e-0"), leaving))


def attachment(of, kind, on):
    spec = {"volume": of, "attachmentTickets": {"t": {"id": "t", "type": kind, "nodeID": on}}}
    return manifest("longhorn.io/v1beta2", "VolumeAttachment", of, LONGHORN, spec=spec)


def detaching(value):
    name = "detach-manually-attached-volumes-when-cordoned"
    return manifest("longhorn.io/v1beta2", "Setting", name, LONGHORN, value=value)


@pytest.mark.parametrize("setting", [[], [detaching("false")]])
@pytest.mark.parametrize("policy", [[], [world.policy("always-allow")]])
def test_a_volume_attached_by_hand_keeps_the_budget(policy, setting):
    by_hand = attachment("v1", "longhorn-api", "a")
    found = blocker(world.longhorn(*COPIES, manager("a"), by_hand, *policy, *setting))
    assert found["now"]
    assert "volume v1 was attached to a by hand" in found["reason"]
    assert ("patch settings.longhorn.io detach-manually" in found["remedy"]) is bool(setting)


@pytest.mark.parametrize(
    "objects",
    [
        [attachment("v1", "csi-attacher", "a")],
        [attachment("v1", "longhorn-api", "b")],
        [attachment("v1", "longhorn-api", "a"), detaching("true")],
    ],
)
def test_an_attachment_that_leaves_with_the_pods_or_is_elsewhere_keeps_no_budget(objects):
    assert wait(world.longhorn(*COPIES, manager("a"), *objects))


@pytest.mark.parametrize(
    ("pods", "known"), [([], False), ([{"podName": "virt-launcher-web-x"}], True)]
)
def test_attachments_that_cannot_be_read_matter_for_a_volume_without_pods(pods, known):
    status = {"currentNodeID": "a", "kubernetesStatus": {"pvName": "", "workloadsStatus": pods}}
    attached = manifest("longhorn.io/v1beta2", "Volume", "v1", LONGHORN, status=status)
    objects, plural = (
        world.longhorn(*COPIES, manager("a"), attached),
        "volumeattachments.longhorn.io",
    )
    if known:
        assert drained(objects, unreadable=[plural])["drainable"]
    else:
        assert plural in unknown(objects, unreadable=[plural])


@pytest.mark.parametrize("plural", ["engines", "instancemanagers"])
def test_engines_that_cannot_be_read(plural):
    objects = world.longhorn(*COPIES, *([manager("a", "v1-e-0")] if plural == "engines" else []))
    assert f"{plural}.longhorn.io" in unknown(objects, unreadable=[f"{plural}.longhorn.io"])


def test_a_budget_that_selects_the_instance_manager_of_another_node():
    labels = {"longhorn.io/component": "instance-manager", "longhorn.io/node": "a"}
    objects = without(world.longhorn(*COPIES), ("PodDisruptionBudget", "instance-manager-a"))
    wrong = budget("instance-manager-b", LONGHORN, labels, allowed=0, minAvailable=1)
    objects = without(objects, ("PodDisruptionBudget", "instance-manager-b"))
    found = blocker([*objects, wrong, manager("b")])
    assert found["reason"].startswith("Longhorn wrote it for the instance manager of b")


@pytest.mark.parametrize(
    ("version", "stays"),
    [("v1.2.6", 1), ("v1.3.2", 1), ("v1.4.1", 1), ("v1.4.2", 0), ("v1.5.0", 0)],
)
def test_an_instance_manager_whose_node_runs_no_longhorn_manager(version, stays):
    release = manifest(
        "longhorn.io/v1beta2", "Setting", "current-longhorn-version", LONGHORN, value=version
    )
    found = drained(world.longhorn(*COPIES, manager("a", keeper="b"), release))
    assert len(found["blockers"]) == stays
    assert all("no longhorn-manager runs on a" in each["reason"] for each in found["blockers"])


def with_id(osd, number):
    osd.data["metadata"]["labels"]["ceph-osd-id"] = number
    return osd


def test_an_osd_of_a_healthy_node_has_failed():
    objects = rook_without(OSD_BUDGET, ("Pod", "rook-ceph-osd-2"))
    failed = with_id(world.osd(2, "b", ready=False), "2")
    found = blocker([*objects, failed, world.blocking_budget("a"), world.blocking_budget("c")])
    assert found["reason"].startswith("OSD 2 on b is down although the node is up")


def left_budgets(*, down=(), on="c", lost=True, stopped=False):
    """Rook has written budgets for the drain of b, and the OSDs that are ``down`` are on ``on``."""
    gone = [with_id(world.osd(each, on, ready=False), str(each)) for each in down]
    drop = [OSD_BUDGET, *(("Pod", each.name) for each in gone), ("Node", "c"), CEPH]
    domain = {world.DOMAIN: "b"}
    replicas = manifest(
        "apps/v1",
        "Deployment",
        "rook-ceph-osd-9",
        "rook-ceph",
        metadata={"labels": domain},
        status={"readyReplicas": 0 if stopped else 1},
    )
    state = manifest(
        "v1",
        "ConfigMap",
        "rook-ceph-pdbstatemap",
        "rook-ceph",
        data={"draining-failure-domain": "b"},
    )
    ceph = world.ceph("HEALTH_WARN")
    ceph.data["status"]["ceph"]["details"] = {"PG_DEGRADED": {"severity": "HEALTH_WARN"}}
    third = node("c")
    third.data["status"] = world.DOWN if lost else third.data["status"]
    blocking = map(world.blocking_budget, "ac")
    return [*rook_without(*drop), third, *gone, ceph, replicas, state, *blocking]


def test_rook_keeps_the_budgets_of_a_drain_that_is_over_as_another_osd_is_down():
    found = blocker(left_budgets(down=[4]))
    assert found["now"]
    assert found["reason"] == (
        "Rook has written it while OSDs of b were down (draining-failure-domain of ConfigMap "
        "rook-ceph-pdbstatemap), which are up again, and keeps it as OSD 4 of c (which is not "
        "Ready) is down (PG_DEGRADED)"
    )
    assert found["remedy"].startswith("Bring OSD 4 of c back: kubectl describe node c; wait until")
    assert "Do not delete them, nor drain b, whose" in found["remedy"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "which are up again, and removes it once Ceph's data is clean"),
        ({"down": [4], "lost": False}, "keeps it as OSD 4 of c is down (PG_DEGRADED)"),
        ({"stopped": True}, "Ceph waits until b is back and its data is clean"),
        ({"down": [2], "on": "b"}, "OSD 2 on b is down although the node is up"),
        ({"down": [4], "stopped": True}, "clean, and OSD 4 of c (which is not Ready) is down too"),
    ],
    ids=["all up", "on a node that is up", "without a pod", "of the domain itself", "both"],
)
def test_what_rook_keeps_its_budgets_of_a_drain_for(given, says):
    assert says in blocker(left_budgets(**given))["reason"]


@pytest.mark.parametrize(("down", "on"), [([4], "c"), ([2], "b"), ([], "c")])
def test_the_drain_of_the_domain_that_rook_lets_go_while_another_one_is_down(down, on):
    (found,) = drain_plan.plan(Snapshot(left_budgets(down=down, on=on), complete=["*"]), "b").nodes
    told = [each for each in found.notes if each.startswith("No budget protects OSD ")]
    assert [each.split(": ")[0].partition(", ")[2] for each in told] == [
        "although OSD 4 of c (which is not Ready) is down"
    ] * (on == "c" and bool(down))


def test_an_osd_is_up_beside_a_pod_that_its_node_does_not_end():
    gone = with_id(world.osd(2, "b", ready=False), "2")
    gone.data["metadata"]["name"] = "rook-ceph-osd-2-old"
    again = with_id(world.osd(2, "b"), "2")
    objects = without(left_budgets(), ("Pod", "rook-ceph-osd-2"))
    assert "which are up again" in blocker([*objects, gone, again])["reason"]


def own_domain(*, cordoned, ready=True):
    """OSD 0 of node a is evicted, and Rook blocks every node, a included.

    ``ready``: whether OSD 5 of c is up.
    """
    gone, last = (
        with_id(world.osd(0, "", ready=False), "0"),
        with_id(world.osd(5, "c", ready=ready), "5"),
    )
    gone.data["metadata"]["labels"] |= {world.DOMAIN: "a", "topology-location-host": "a"}
    drop = [("Pod", "rook-ceph-osd-0"), ("Pod", "rook-ceph-osd-5"), ("Node", "a")]
    blocking = map(world.blocking_budget, "abc")
    return [*rook_without(OSD_BUDGET, *drop), node("a", cordoned=cordoned), gone, last, *blocking]


@pytest.mark.parametrize(
    ("cordoned", "remedy"),
    [
        (True, "Let OSD 0 start: kubectl uncordon a; then wait until"),
        (False, "Repair OSD 0, then wait until"),
    ],
)
def test_an_osd_of_the_drained_node_itself_is_down(cordoned, remedy):
    found = blocker(own_domain(cordoned=cordoned))
    assert found["now"]
    assert found["reason"].startswith("OSD 0 of a itself is down")
    assert found["remedy"].startswith(remedy)


def test_an_osd_of_another_node_is_down_too():
    assert "of a itself" not in blocker(own_domain(cordoned=True, ready=False))["reason"]


@pytest.mark.parametrize(("minutes", "waits"), [(4, True), (6, False)])
def test_rook_that_does_not_let_the_other_osds_go(minutes, waits):
    gone = with_id(world.osd(0, "", ready=False), "0")
    gone.data["metadata"]["labels"][world.DOMAIN] = "a"
    gone.data["metadata"]["creationTimestamp"] = f"2026-01-01T11:{60 - minutes}:00Z"
    objects = [
        *rook_without(OSD_BUDGET, ("Pod", "rook-ceph-osd-0")),
        gone,
        world.osd_budget(allowed=0),
    ]
    found = drained(objects, time="2026-01-01T12:00:00Z")
    assert (found["blockers"] == []) is waits
    assert waits or "Rook has not let the other OSDs" in found["blockers"][0]["reason"]


def test_the_guard_of_another_cordoned_node_is_gone():
    labels = {"app": "guard"}
    pods = [pod(f"etcd-guard-{on}", "openshift-etcd", labels, on, owner="Node") for on in "ac"]
    masters = [node(on, cordoned=on != "c") for on in "abc"]
    for each in masters:
        each.data["metadata"]["labels"] = {"node-role.kubernetes.io/master": ""}
    strict = budget(
        "etcd-guard-pdb", "openshift-etcd", labels, allowed=0, expected=2, minAvailable=2
    )
    found = blocker([*masters, *pods, strict])
    assert found["reason"].startswith("b is cordoned and without its guard")
    assert "Finish the maintenance of b first" in found["remedy"]


@pytest.mark.parametrize(
    ("component", "deleted", "says", "remedy"),
    [
        (
            "etcd",
            "ab",
            ". Machines machines/m-a, machines/m-b are being deleted",
            "the operator of etcd has removed",
        ),
        ("etcd", "a", ". Machine machines/m-a is being deleted", "Repair etcd there"),
        ("etcd", "", "at a time", "Repair etcd there"),
        ("kube-apiserver", "ab", "are being deleted", "Repair kube-apiserver there"),
    ],
)
def test_guards_on_nodes_whose_machines_are_being_deleted(component, deleted, says, remedy):
    space, labels = f"openshift-{component}", {"app": "guard"}
    pods = [
        pod(f"{component}-guard-{on}", space, labels, on, owner="Node", ready=on == "c")
        for on in "abc"
    ]
    strict = budget(f"{component}-guard-pdb", space, labels, allowed=0, expected=3, minAvailable=2)
    machines = [
        manifest(
            "machine.openshift.io/v1beta1",
            "Machine",
            f"m-{on}",
            "machines",
            status={"nodeRef": {"name": on}},
        )
        for on in deleted
    ]
    for each in machines:
        each.data["metadata"]["deletionTimestamp"] = "2026-01-01T11:00:00Z"
    found = blocker([*(node(on) for on in "abc"), *pods, strict, *machines], on="c")
    assert found["reason"].endswith(says)
    assert remedy in found["remedy"]


CLEANER = "strimzi-drain-cleaner"


def kafka(release, **limit):
    """A broker on each node, their budget, and Drain Cleaner of a release."""
    labels = {"strimzi.io/cluster": "log", "strimzi.io/name": "log-kafka"}
    service = {"service": {"name": CLEANER, "namespace": CLEANER}}
    hook = {"clientConfig": service, "rules": [{"resources": ["pods/eviction"]}]}
    image = {"image": f"quay.io/strimzi/drain-cleaner:{release}"}
    allowed = limit.get("maxUnavailable", 0)
    return [
        *(node(on) for on in "abc"),
        *(pod(f"log-kafka-{on}", "shop", labels, on, owner="StrimziPodSet") for on in "abc"),
        budget(
            "log-kafka",
            "shop",
            {"strimzi.io/cluster": "log"},
            allowed=allowed,
            expected=3,
            owner=OWNER,
            **limit,
        ),
        webhook_configuration(CLEANER, hook),
        manifest(
            "apps/v1",
            "Deployment",
            CLEANER,
            CLEANER,
            spec={"template": {"spec": {"containers": [image]}}},
        ),
    ]


OWNER = ("kafka.strimzi.io/v1beta2", "Kafka", "log")


def test_drain_cleaner_ends_kubectl_drain_but_not_an_upgrade():
    objects = kafka("1.3.0", maxUnavailable=1)
    found = blocker(objects)
    assert (found["kind"], found["name"], found["now"]) == ("Pod", "log-kafka-a", True)
    assert "Drain again" in found["remedy"]
    plans = drain_plan.plan(Snapshot(objects, complete=["*"])).nodes
    assert [len(each.pods.blockers) for each in plans] == [1, 1, 1]
    assert [stop for each in plans for stop in simulated_world.other_pods(each)] == []


def test_an_older_drain_cleaner_lets_the_eviction_pass():
    found = drained(kafka("1.0.1", maxUnavailable=1))
    assert (found["drainable"], found["blockers"]) == (True, [])


def test_what_a_drain_cleaner_of_an_unknown_release_does_is_not_known():
    found = drained(kafka("latest", maxUnavailable=1))
    assert (found["drainable"], found["blockers"]) == (None, [])


@pytest.mark.parametrize("kind", [VALIDATING_CONFIGURATION, DEPLOYMENT], ids=str)
def test_a_drain_cleaner_that_cannot_be_read_may_refuse(kind):
    objects = [each for each in kafka("1.3.0", maxUnavailable=1) if each.kind != kind.kind]
    found = drain_plan.plan(Snapshot(objects, ["*"], [kind.resource])).nodes
    assert [each.drainable for each in found] == [None, None, None]


def test_a_budget_of_0_is_a_wait_with_drain_cleaner():
    assert "Strimzi operator moves" in wait(kafka("1.3.0", maxUnavailable=0))["reason"]


def answering(*ready):
    """Return the Service of Drain Cleaner with an endpoint for each of these."""
    endpoints = [
        {"addresses": ["10.0.0.1"], "conditions": {"ready": each}, "nodeName": "b"}
        for each in ready
    ]
    return [
        manifest("v1", "Service", CLEANER, CLEANER),
        endpoint_slice(CLEANER, CLEANER, *endpoints),
    ]


def strimzi(*, ready, name="0"):
    labels = {"strimzi.io/kind": "cluster-operator"}
    return pod(f"strimzi-cluster-operator-{name}", "strimzi", labels, "b", ready=ready)


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        (
            answering(),
            (
                "Drain Cleaner does not answer (Service "
                "strimzi-drain-cleaner/strimzi-drain-cleaner has no ready"
            ),
        ),
        (answering(False), "has no ready endpoint), so nothing moves the pods of Kafka log"),
        (
            [*answering(True), strimzi(ready=False)],
            "the Strimzi operator has no Ready pod in namespace strimzi",
        ),
    ],
)
@pytest.mark.parametrize("release", ["1.0.1", "1.3.0"])
def test_a_budget_of_0_stays_without_an_answer_of_drain_cleaner(release, objects, says):
    found = blocker([*kafka(release, maxUnavailable=0), *objects])
    assert found["now"]
    assert says in found["reason"]
    assert "Repair its pods" in found["remedy"]


@pytest.mark.parametrize(
    "more", [[], [strimzi(ready=True)], [strimzi(ready=True), strimzi(ready=False, name="1")]]
)
def test_a_budget_of_0_is_a_wait_while_drain_cleaner_answers(more):
    assert (
        "Strimzi operator moves"
        in wait([*kafka("1.0.1", maxUnavailable=0), *answering(True, False), *more])["reason"]
    )


def test_a_drain_cleaner_that_does_not_answer_refuses_nothing():
    found = drained([*kafka("1.3.0", maxUnavailable=1), *answering()])
    assert (found["drainable"], found["blockers"]) == (True, [])


def test_a_drain_cleaner_whose_endpoints_cannot_be_read():
    objects = [*kafka("1.0.1", maxUnavailable=0), *answering()[:1]]
    assert "endpointslices" in unknown(objects, unreadable=["endpointslices.discovery.k8s.io"])
