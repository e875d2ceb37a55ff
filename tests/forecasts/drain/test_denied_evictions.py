"""Evictions that a webhook, a policy or missing permissions refuse to what drains a node."""

import time

from tests.builders import endpoint_slice, manifest, node, webhook_configuration
from tests.for_each import for_each
from tests.work import measured
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.evidence.writes import eviction_answers
from virt_admit.model.kubernetes.cluster import Snapshot

NOW, BEGAN = "2026-01-01T12:00:00Z", "2026-01-01T11:30:00Z"
HOOK = {
    "name": "evict.example.com",
    "clientConfig": {"service": {"name": "gate", "namespace": "gates"}},
    "rules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods/eviction"],
        }
    ],
}
GATE = webhook_configuration("gate", HOOK, kind="Mutating")
SERVICE = manifest("v1", "Service", "gate", "gates", spec={"selector": {"app": "gate"}})
ENDPOINT = {
    "conditions": {"ready": True},
    "nodeName": "b",
    "targetRef": {"kind": "Pod", "name": "g"},
}
ANSWERS = (SERVICE, endpoint_slice("gate", "gates", ENDPOINT))
UNREADABLE = 'no kind "Eviction" is registered for version "policy/v1" in scheme "s.go:100"'


def pod(name, namespace="shop", image="web:1", on="a", **labels):
    return manifest(
        *("v1", "Pod", name, namespace),
        metadata={"labels": labels, "ownerReferences": [OWNER]},
        spec={"nodeName": on, "containers": [{"name": "c", "image": image}]},
        status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    )


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}


def denied(name, words, by="evict.example.com"):
    return (
        f'error when evicting pods/"{name}" -n "shop": admission webhook "{by}" denied the '
        f"request: {words}"
    )


def maintained(error, *objects, began=BEGAN, phase="Running"):
    """Return the plan of a node that a NodeMaintenance drains, with its last error."""
    taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": began}
    maintenance = manifest(
        *("nodemaintenance.medik8s.io/v1beta1", "NodeMaintenance", "dimm"),
        metadata={"creationTimestamp": began},
        spec={"nodeName": "a"},
        status={"phase": phase, "lastError": error, "pendingPods": ["web"]},
    )
    home = node("a", unschedulable=True, taints=[taint])
    cluster = Snapshot(
        (home, node("b"), maintenance, pod("web"), pod("api"), *ANSWERS, *objects),
        complete=["*"],
        time=NOW,
    )
    return plan(cluster, "a").nodes[0]


@for_each(
    "error, objects, says",
    [
        (denied("web", "not now"), (GATE,), "denies the eviction of 1 pod (shop/web) (NodeM"),
        (f"[{denied('web', 'no')}, {denied('api', 'no')}]", (GATE,), "2 pods (shop/api, shop/web)"),
        # every pod meets a webhook that cannot read
        (denied("web", UNREADABLE), (GATE,), "2 pods (shop/api, shop/web), as it cannot read"),
        (
            'error when evicting pods/"web" -n "shop": Internal error occurred: failed calling '
            'webhook "evict.example.com": context deadline exceeded',
            (GATE,),
            "does not answer to the eviction of 1 pod (shop/web)",
        ),
        (
            'error when evicting pods/"web" -n "shop": pods "web" is forbidden: User '
            '"system:serviceaccount:ops:drainer" cannot create resource "pods/eviction" in API '
            'group "" in the namespace "shop"',
            (),
            "may not evict 1 pod (shop/web)",
        ),
        (
            'error when evicting pods/"web" -n "shop": pods "web" is forbidden: '
            "ValidatingAdmissionPolicy 'keep' with binding 'keep-all' denied request: kept",
            (
                manifest(
                    *("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
                    "keep-all",
                    spec={"policyName": "keep", "validationActions": ["Deny"]},
                ),
            ),
            "denies the eviction of 1 pod (shop/web)",
        ),
    ],
)
def test_what_refuses_evictions_blocks_the_drain(error, objects, says):
    found = maintained(error, *objects)

    (blocker,) = found.pods.blockers
    assert says in blocker.reason
    assert "NodeMaintenance dimm" in blocker.reason
    assert found.drainable is False


@for_each(
    "error, objects, more",
    [
        # KubeVirt migrates what it denies, and Drain Cleaner rolls it
        (denied("web", "x", "virt-launcher-eviction-interceptor.kubevirt.io"), (GATE,), {}),
        (denied("web", "x", "strimzi-drain-cleaner.strimzi.io"), (GATE,), {}),
        # it has left, or is on another node
        (denied("gone", "x"), (GATE,), {}),
        (denied("far", "x"), (GATE, pod("far", on="b")), {}),
        # the webhook is gone, or leaves the namespace alone by now
        (denied("web", UNREADABLE), (), {}),
        (
            denied("web", UNREADABLE),
            (
                webhook_configuration(
                    "gate",
                    HOOK
                    | {
                        "namespaceSelector": {
                            "matchLabels": {"kubernetes.io/metadata.name": "other"}
                        }
                    },
                ),
            ),
            {},
        ),
        (denied("web", UNREADABLE), (GATE,), {"phase": "Succeeded"}),
        ('error when evicting pods/"web" -n "shop": global timeout reached: 30s', (GATE,), {}),
        # what may make way, and a release that reads policy/v1
        (
            "",
            (GATE, pod("gate", "gates", "ghcr.io/x/pod-graceful-drain:v0.0.8", "b", app="gate")),
            {},
        ),
    ],
)
def test_other_answers_do_not(error, objects, more):
    assert maintained(error, *objects, **more).drainable is True


@for_each("said", ['admission webhook "x" denied the request: ' * 2000, f"{'x' + ' ' * 50_000}y"])
def test_long_answers_cost_no_square_of_their_length(said):
    begun = time.process_time()
    assert list(eviction_answers.of(f'admission webhook "x" denied the request: {said}'))
    assert time.process_time() - begun < 10


def test_a_webhook_may_make_way_at_first():
    found = maintained(denied("web", "not now"), GATE, began="2026-01-01T11:55:00Z")

    assert found.drainable is None
    assert "evict.example.com denies the eviction of 1 pod" in found.pods.unseen[0]


def test_an_image_that_cannot_read_evictions_denies_each():
    old = pod("gate", "gates", "ghcr.io/x/pod-graceful-drain:v0.0.7", "b", app="gate")
    cluster = Snapshot((node("a"), node("b"), pod("web"), *ANSWERS, GATE, old), complete=["*"])

    (blocker,) = plan(cluster, "a").nodes[0].pods.blockers
    assert blocker.subject == "MutatingWebhookConfiguration gate"
    assert "v0.0.7 to release 0.0.8 or later" in blocker.remedy
    assert "kubectl delete mutatingwebhookconfiguration gate" in blocker.remedy


@for_each("ended, kept", [("2026-01-01T11:50:00Z", True), ("2026-01-01T10:30:00Z", False)])
def test_an_event_of_the_drain_counts_for_an_hour(ended, kept):
    event = manifest(
        *("v1", "Event", "e", "default"),
        involvedObject={"kind": "Node", "name": "a"},
        type="Warning",
        reason="FailedToDrain",
        message=denied("web", "not now"),
        lastTimestamp=ended,
    )
    found = maintained("", GATE, event, began="2026-01-01T08:00:00Z")

    assert (found.drainable is False) is kept


@for_each("status, outcome", [({}, VmOutcome.BLOCKS), ({"evacuationNodeName": "a"}, None)])
def test_a_vm_that_was_asked_to_leave_goes_on(status, outcome):
    vmi = manifest(
        *("kubevirt.io/v1", "VirtualMachineInstance", "db", "shop"),
        metadata={"uid": "u"},
        spec={"evictionStrategy": "LiveMigrate", "domain": {"devices": {}}},
        status={
            "phase": "Running",
            "nodeName": "a",
            "conditions": [{"type": "LiveMigratable", "status": "True"}],
        }
        | status,
    )
    owner = {"apiVersion": "kubevirt.io/v1", "kind": vmi.kind, "name": "db", "controller": True}
    launcher = pod("virt-launcher-db", **{"kubevirt.io": "virt-launcher"})
    launcher.data["metadata"]["ownerReferences"] = [owner | {"uid": "u"}]
    found = maintained(denied("virt-launcher-db", UNREADABLE), GATE, vmi, launcher)

    (row,) = found.forecasts
    assert (outcome is None) is ("cannot read an Eviction" not in row.reason)
    assert outcome in (None, row.outcome)


def test_cluster_api_names_several_pods():
    machine = manifest(
        *("cluster.x-k8s.io/v1beta1", "Machine", "m", "fleet"),
        metadata={"deletionTimestamp": BEGAN, "finalizers": ["machine.cluster.x-k8s.io"]},
        status={
            "nodeRef": {"kind": "Node", "name": "a"},
            "conditions": [
                {
                    "type": "DrainingSucceeded",
                    "status": "False",
                    "reason": "Draining",
                    "lastTransitionTime": BEGAN,
                    "message": f"Drain not completed yet (started at {BEGAN}):\n* Pods shop/api, "
                    'shop/web: admission webhook "evict.example.com" denied the request: keep\n'
                    "* Pod shop/other: cannot evict pod",
                }
            ],
        },
    )
    cluster = Snapshot(
        (node("a"), node("b"), pod("web"), pod("api"), *ANSWERS, GATE, machine),
        complete=["*"],
        time=NOW,
    )

    (blocker,) = plan(cluster, "a").nodes[0].pods.blockers
    assert "2 pods (shop/api, shop/web) (Machine fleet/m): keep" in blocker.reason


def test_a_long_answer_is_read_in_no_time():
    with measured() as work:
        (answer,) = eviction_answers.of(denied("web", "wait" + " " * 60_000 + "here"))
    assert answer.words.startswith("wait here")
    assert work.seconds < 1
