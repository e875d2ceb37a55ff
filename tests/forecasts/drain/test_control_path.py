"""KubeVirt's components that keep every VM of a node."""

import pytest

from tests.builders import complete, kubevirt, manifest, node, owned_by, webhook_configuration
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.kubernetes.cluster import Snapshot

DEVICES = {
    f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net", "vhost-vsock")
}
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "100Gi"} | DEVICES
NODES = tuple(node(name, allocatable=ROOM) for name in ("a", "b", "c"))
NOON = "2026-01-01T12:00:00Z"


def at(name, time=NOON, status="True", **said):
    """Return a Node with the time of its last heartbeat."""
    found = node(name, allocatable=ROOM)
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": time} | said
    return manifest(
        "v1",
        "Node",
        name,
        metadata=found.data["metadata"],
        status={"allocatable": ROOM, "conditions": [condition]},
    )


def guest(name, strategy="LiveMigrate", **status):
    status = {
        "phase": "Running",
        "nodeName": "a",
        "conditions": [{"type": "LiveMigratable", "status": "True"}],
    } | status
    spec = {"evictionStrategy": strategy, "domain": {"cpu": {"model": "host-model"}, "devices": {}}}
    metadata = {"ownerReferences": owned_by("VirtualMachine", name), "labels": {"tier": "db"}}
    return manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        name,
        "shop",
        metadata=metadata,
        spec=spec,
        status=status,
    )


def machine(name, strategy="Always"):
    return manifest(
        "kubevirt.io/v1", "VirtualMachine", name, "shop", spec={"runStrategy": strategy}
    )


VMS = (guest("db"), machine("db"))
OFF = (guest("cache", "None"), machine("cache"))


def component(name, on, ready="True", namespace="kubevirt", **spec):
    metadata = {
        "labels": {"kubevirt.io": name},
        "ownerReferences": [{"kind": "ReplicaSet", "name": name, "controller": True}],
    }
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    return manifest(
        "v1",
        "Pod",
        f"{name}-{on}",
        namespace,
        metadata=metadata,
        spec={"nodeName": on} | spec,
        status=status,
    )


def deployment(name):
    return manifest("apps/v1", "Deployment", name, "kubevirt", status={"readyReplicas": 0})


def running(release):
    return kubevirt(status={"observedKubeVirtVersion": release})


def drained(*objects, nodes=NODES):
    return plan(complete(*nodes, *objects), "a").nodes[0]


def outcomes(found):
    return {row.vmi.name: row.outcome for row in found.forecasts}


def test_an_api_that_is_not_available_is_a_note():
    down = [{"type": "Available", "status": "False"}]
    api, name = "apiregistration.k8s.io/v1", "v1.subresources.kubevirt.io"
    found = drained(*VMS, manifest(api, "APIService", name, status={"conditions": down}))
    assert found.drainable is True
    assert found.notes == (
        f"APIService {name} is not available; virtctl fails, so use kubectl meanwhile.",
    )


@pytest.mark.parametrize("release", ["v1.4.0", "v1.7.0"])
def test_an_api_that_serves_an_expired_certificate_has_webhooks_that_fail(release):
    """As kubevirt#15210: the pods of virt-api are ready,
    and the API server refuses what they serve.
    """
    message = (
        "failing or missing response from https://10.0.0.9:443/apis/subresources.kubevirt.io/v1: "
        'Get "https://10.0.0.9:443": tls: failed to verify certificate: x509: certificate has '
        "expired or is not yet valid: current time is late"
    )
    down = {
        "type": "Available",
        "status": "False",
        "reason": "FailedDiscoveryCheck",
        "message": message,
    }

    def found(name):
        service = manifest(
            "apiregistration.k8s.io/v1", "APIService", name, status={"conditions": [down]}
        )
        return drained(*VMS, running(release), component("virt-api", "b"), service)

    expired = found("v1.subresources.kubevirt.io")
    assert outcomes(expired) == {"db": VmOutcome.BLOCKS}
    restart = "kubectl delete pods -l kubevirt.io=virt-api -n kubevirt"
    assert restart in expired.pods.blockers[0].remedy
    assert "kubectl meanwhile" not in expired.notes[0]
    assert "virtctl fails, and so does kubectl for VMs" in expired.notes[0]
    assert found("v1beta1.metrics.k8s.io").drainable is True


def test_a_snapshot_without_any_component_is_not_judged():
    found = drained(*VMS, kubevirt())

    assert (found.drainable, found.control) == (True, ())


@pytest.mark.parametrize(
    "parts", [(component("virt-controller", "b", ready="False"),), (deployment("virt-controller"),)]
)
def test_without_virt_controller_no_vm_migrates(parts):
    found = drained(*VMS, *OFF, *parts, component("virt-api", "b"))

    assert outcomes(found) == {"db": VmOutcome.BLOCKS, "cache": VmOutcome.RESTARTS}
    assert [(item.name, item.now) for item in found.pods.blockers] == [("virt-controller", True)]
    assert found.pods.blockers[0].effect == "keeps VMs now"
    assert [(each.component, each.healthy) for each in found.control] == [
        ("virt-api", True),
        ("virt-controller", False),
    ]


def test_a_lease_that_is_not_renewed():
    lease = manifest(
        "coordination.k8s.io/v1",
        "Lease",
        "virt-controller",
        "kubevirt",
        spec={"renewTime": "2026-01-01T11:50:00.000000Z"},
    )
    found = drained(*VMS, component("virt-controller", "b"), lease, nodes=(at("a"), at("b")))

    assert found.drainable is False
    assert "Lease for 10 minutes" in found.pods.blockers[0].reason


@pytest.mark.parametrize(
    ("release", "cache"), [("v1.6.0", VmOutcome.BLOCKS), ("v1.4.0", VmOutcome.RESTARTS)]
)
def test_without_virt_api_evictions_fail_since_1_5(release, cache):
    found = drained(*VMS, *OFF, running(release), component("virt-api", "b", ready="False"))

    assert outcomes(found) == {"db": VmOutcome.BLOCKS, "cache": cache}
    (blocker,) = found.pods.blockers
    evicts = cache is VmOutcome.RESTARTS
    assert blocker.effect == ("keeps VMs now" if evicts else "blocks now")


def test_a_virt_handler_that_is_not_ready_leaves_the_migration_open():
    broken = component("virt-handler", "a", ready="False")

    assert drained(*VMS, broken).drainable is None
    assert drained(*OFF, broken).drainable is True
    assert drained(*VMS, component("virt-handler", "a")).drainable is True
    assert [each.healthy for each in drained(*VMS, broken).control] == [False]


def test_webhook_configurations_that_cannot_be_read():
    kind = "validatingwebhookconfigurations.admissionregistration.k8s.io"
    found = plan(Snapshot([*NODES, *OFF], ["*"], [kind]), "a").nodes[0]

    assert found.drainable is None
    assert kind in " ".join(found.unseen)


def test_the_endpoints_of_virt_api_decide():
    service = manifest("v1", "Service", "virt-api", "kubevirt")
    found = drained(*VMS, service, component("virt-api", "b"))

    assert found.drainable is False
    assert "no ready endpoint" in found.pods.blockers[0].reason


@pytest.mark.parametrize("name", ["virt-api", "virt-controller"])
def test_a_component_on_the_drained_node_alone(name):
    movable, pinned = (
        component(name, "a"),
        component(name, "a", nodeSelector={"kubernetes.io/hostname": "a"}),
    )

    race = drained(*VMS, movable)
    assert race.drainable is None
    assert "kubectl cordon a" in " ".join(race.unseen)
    assert outcomes(race) == {"db": VmOutcome.MIGRATES}
    never = drained(*VMS, pinned)
    assert never.drainable is False
    assert never.pods.blockers[0].remedy.startswith(
        "Add a node that its placement allows: kubectl describe deployment "
    )
    assert drained(*VMS, movable, component(name, "b")).drainable is True
    assert drained(movable).drainable is True


@pytest.mark.parametrize(("release", "expected"), [("v1.5.0", False), ("v1.4.0", True)])
def test_virt_api_on_the_drained_node_alone_keeps_vms_that_are_shut_down_too(release, expected):
    setting = kubevirt(status={"observedKubeVirtVersion": release})
    pinned = component("virt-api", "a", nodeSelector={"kubernetes.io/hostname": "a"})
    assert drained(*OFF, pinned, setting).drainable is expected
    assert drained(*OFF, component("virt-api", "a"), setting).drainable is (
        None if expected is False else True
    )
    controller = component("virt-controller", "a", nodeSelector={"kubernetes.io/hostname": "a"})
    assert drained(*OFF, controller, setting).drainable is True


def hook(failure_policy):
    """Return the webhook of virt-api on evictions."""
    own = {
        "name": "virt-launcher-eviction-interceptor.kubevirt.io",
        "failurePolicy": failure_policy,
        "clientConfig": {"service": {"name": "virt-api", "namespace": "kubevirt"}},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["*"],
                "resources": ["pods/eviction"],
            }
        ],
    }
    return webhook_configuration("virt-api-validator", own)


def test_the_vms_of_the_only_node_are_evicted_together_with_virt_api():
    only = NODES[:1]
    parts = [component(name, "a") for name in ("virt-api", "virt-controller")]
    found = drained(*OFF, *parts, running("v1.6.0"), nodes=only)
    assert found.drainable is True
    assert outcomes(found) == {"cache": VmOutcome.AWAITS_NODE}
    (note,) = found.notes
    assert "a repeated drain evicts virt-api again. Shut the VMs down first; if it has" in note
    assert drained(*OFF, *parts, running("v1.4.0"), nodes=only).notes == ()
    closed, open_ = (
        drained(*OFF, *parts, running("v1.6.0"), hook(each), nodes=only)
        for each in ("Fail", "Ignore")
    )
    assert (closed.notes, open_.notes) == ((note,), ())
    assert drained(*parts, running("v1.6.0"), nodes=only).notes == ()

    migrating = drained(*VMS, *parts, running("v1.6.0"), nodes=only)
    assert migrating.drainable is False
    assert not any(
        "Add a node" in problem.remedy for row in migrating.forecasts for problem in row.problems
    )
    assert migrating.pods.blockers == ()

    gone = [deployment("virt-api"), deployment("virt-controller"), running("v1.6.0")]
    assert drained(*OFF, *gone, nodes=only).drainable is False


@pytest.mark.parametrize(("ready", "names"), [("False", ("c",)), ("True", ("b", "c"))])
def test_a_node_whose_virt_handler_is_not_ready_is_no_candidate(ready, names):
    (row,) = drained(*VMS, component("virt-handler", "b", ready=ready)).forecasts
    assert (row.outcome, row.placement.certain) == (VmOutcome.MIGRATES, names)
    both = [component("virt-handler", on, ready=ready) for on in ("b", "c")]
    assert outcomes(drained(*VMS, *both)) == {
        "db": VmOutcome.BLOCKS if ready == "False" else VmOutcome.MIGRATES
    }


def test_a_component_may_have_pods_that_were_not_read():
    pinned = component("virt-api", "a", nodeSelector={"kubernetes.io/hostname": "a"})
    found = plan(Snapshot([*NODES, *VMS, pinned], ["*"], ["pods"]), "a").nodes[0]
    assert found.drainable is None
    assert found.pods.blockers == ()


@pytest.mark.parametrize(
    ("status", "target", "says"),
    [("True", "v1.6.2", True), ("True", "v1.5.2", False), ("False", "v1.6.2", False)],
)
def test_an_update_of_kubevirt_that_goes_on_is_a_note(status, target, says):
    progressing = {"type": "Progressing", "status": status, "reason": "UpdateInProgress"}
    progressing["lastTransitionTime"] = "2026-01-01T11:55:00Z"
    updated = kubevirt(
        status={
            "observedKubeVirtVersion": "v1.5.2",
            "targetKubeVirtVersion": target,
            "conditions": [progressing, {"type": "Degraded", "status": status}],
        }
    )
    found = drained(*VMS, at("a"), updated, nodes=NODES[1:])
    assert found.drainable is True
    note = (
        "The update of KubeVirt from v1.5.2 to v1.6.2 (under way for 5 min) goes on and may move "
        "VMs"
    )
    assert any(each.startswith(note) for each in found.notes) is says


def test_the_kubevirt_object_decides_only_where_components_cannot_be_read():
    def with_conditions(available, progressing, *unreadable, phase="Deployed", synchronized="True"):
        said = [
            {"type": "Available", "status": available},
            {"type": "Progressing", "status": progressing},
        ]
        said.append({"type": "Synchronized", "status": synchronized})
        parts = [component("virt-controller", "b"), component("virt-api", "b")] * (not unreadable)
        objects = [*NODES, *VMS, kubevirt(status={"conditions": said, "phase": phase}), *parts]
        found = plan(Snapshot(objects, ["*"], list(unreadable)), "a").nodes[0]
        return found.drainable, [each.healthy for each in found.control]

    assert with_conditions("False", "True") == (True, [True, True])
    assert with_conditions("True", "False", "deployments.apps") == (True, [True, True])
    assert with_conditions("False", "False", "deployments.apps") == (None, [None, None])
    assert with_conditions("True", "False", "deployments.apps", phase="Deploying") == (
        None,
        [None, None],
    )
    assert with_conditions("True", "False", "deployments.apps", synchronized="False") == (
        None,
        [None, None],
    )
    assert with_conditions("True", "False", phase="Deploying", synchronized="False") == (
        True,
        [True, True],
    )


@pytest.mark.parametrize("name", ["virt-api", "virt-controller"])
@pytest.mark.parametrize(
    ("container", "why"),
    [
        (
            {
                "state": {
                    "waiting": {
                        "reason": "ImagePullBackOff",
                        "message": 'Back-off pulling image "quay.io/x"',
                    }
                }
            },
            'ImagePullBackOff: Back-off pulling image "quay.io/x"',
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
                "lastState": {"terminated": {"exitCode": 1}},
            },
            "CrashLoopBackOff, container main ends with exit code 1",
        ),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, ""),
    ],
)
def test_what_the_containers_of_a_component_wait_for_is_said(name, container, why):
    failing, other = (
        component(name, "b", ready="False"),
        "virt-controller" if name == "virt-api" else "virt-api",
    )
    failing.data["status"]["containerStatuses"] = [{"name": "main"} | container]
    known = [*NODES, *VMS, kubevirt(), component(other, "b"), failing]
    (row,) = plan(complete(*known), "a").nodes[0].forecasts
    assert f"{name} has no Ready pod" in row.reason
    assert (f"(pod {name}-b is not ready: {why})" in row.reason) is bool(why)
    assert (f"pod {name}-b" in row.remedy) is bool(why)
