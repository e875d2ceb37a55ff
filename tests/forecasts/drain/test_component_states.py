"""What keeps components of KubeVirt from a node for good."""

import pytest

from tests.builders import manifest
from tests.incidents_platform.operators import tainted
from virt_admit.forecasts.drain import node_notes
from virt_admit.forecasts.drain.control import component_states
from virt_admit.forecasts.placement.components.operands import killed_components
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object


@pytest.mark.parametrize(
    ("key", "stays"), [("dedicated", True), ("kubevirt.io/drain", False), ("karpenter.sh/x", False)]
)
def test_a_taint_that_goes_again_does_not_keep_virt_handler_away(key, stays):
    items = tainted()
    for item in items:
        for taint in item.get("spec", {}).get("taints", ()):
            taint["key"] = key
    snapshot = Snapshot(map(Object, items), ["*"])
    said = [component_states.unwanted(each, snapshot) for each in snapshot.known(NODE)]

    assert any(said) is stays


@pytest.mark.parametrize(
    ("version", "where"),
    [
        ("v1beta1", '"workloads":{"nodePlacement":'),
        ("v1", '"deployment":{"nodePlacements":{"workload":'),
    ],
)
def test_hyperconverged_takes_the_toleration(version, where):
    hco = {"apiVersion": f"hco.kubevirt.io/{version}", "kind": "HyperConverged", "spec": {}}
    hco["metadata"] = {"name": "kubevirt-hyperconverged", "namespace": "kubevirt"}
    snapshot = Snapshot(map(Object, [*tainted(), hco]), ["*"])
    (held,) = (each for each in component_states.held(snapshot) if each.nodes)

    assert "nodePlacement" in held.note
    assert "kubectl patch hyperconverged kubevirt-hyperconverged -n kubevirt" in held.note
    assert where in held.note
    assert '{"key":"dedicated","operator":"Equal","value":"gpu","effect":"NoSchedule"}' in held.note


def test_all_nodes_share_one_look_at_the_pods(monkeypatch):
    asked = []
    monkeypatch.setattr(killed_components, "of", lambda obj, _: iter(asked.append(obj.name) or ()))
    snapshot = Snapshot(map(Object, tainted()), ["*"])
    for node in snapshot.known(NODE):
        list(component_states.leaving(node, snapshot))

    assert len(snapshot.known(NODE)) > 1
    assert asked == ["kubevirt"]


def deploying(level=""):
    """Return a KubeVirt whose virt-handler has no pod for hours, as Pod Security forbids it."""
    labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
    space = {"metadata": {"name": "kubevirt", "labels": labels}}
    ready = {"type": "Available", "status": "False", "message": "Deploying version v1.5.0"}
    ready["lastTransitionTime"] = "2027-03-01T08:00:00Z"
    status = {"conditions": [ready], "phase": "Deploying"}
    event = {
        "metadata": {"name": "e", "namespace": "kubevirt"},
        "involvedObject": {"kind": "DaemonSet", "name": "virt-handler", "namespace": "kubevirt"},
        "type": "Warning",
        "reason": "FailedCreate",
        "lastTimestamp": "2027-03-01T11:50:00Z",
        "message": 'Error creating: pods "virt-handler-x8k2p" is forbidden: violates PodSecurity '
        '"baseline:latest": host namespaces (hostPID=true)',
    }
    own = {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}, "status": status}
    daemon = {"metadata": {"name": "virt-handler", "namespace": "kubevirt"}}
    items = [
        {"apiVersion": "v1", "kind": "Namespace", **space},
        {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", **own},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", **daemon},
        {"apiVersion": "v1", "kind": "Event", **event},
    ]
    return Snapshot(map(Object, items), ["*"], time="2027-03-01T12:00:00Z")


def test_pods_of_virt_handler_that_pod_security_forbids():
    (held,) = component_states.held(deploying())

    assert "DaemonSet virt-handler cannot create its pods, which violate PodSecurity" in held.reason
    assert "host namespaces (hostPID=true)" in held.reason
    assert "kubectl label namespace kubevirt pod-security.kubernetes.io/enforce=" in held.remedy
    assert "Let namespace kubevirt enforce Pod Security privileged" in held.brief


def test_a_namespace_that_allows_them_by_now_is_not_the_cause():
    (held,) = component_states.held(deploying("privileged"))

    assert "PodSecurity" not in held.reason


PREFIX = "kubevirt.io/install-strategy-"
CURRENT = {"version": "v1.7.0", "registry": "quay.io/kubevirt", "identifier": "abc"}


def outdated(namespace="harvester-system", *, template=True):
    """Return a KubeVirt that waits for a virt-handler pod without annotations on b."""
    notes = {f"{PREFIX}{key}": value for key, value in CURRENT.items()}
    waits = {"type": "Available", "status": "False", "reason": "DeploymentInProgress"}
    waits["lastTransitionTime"] = "2027-03-01T08:00:00Z"
    status = {"conditions": [waits], "targetKubeVirtVersion": CURRENT["version"]}
    status["targetKubeVirtRegistry"] = CURRENT["registry"]
    status["targetDeploymentID"] = CURRENT["identifier"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "virt-handler"}
    items = [manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", namespace, status=status)]
    made = {"metadata": {"annotations": notes if template else {}}}
    items += [manifest("apps/v1", "DaemonSet", "virt-handler", namespace, spec={"template": made})]
    for on, given in (("a", notes), ("b", {})):
        meta = {"labels": {"kubevirt.io": "virt-handler"}, "annotations": given}
        meta["ownerReferences"] = [{**owner, "controller": True}]
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        name = f"virt-handler-{on}"
        items += [
            manifest(
                "v1", "Node", on, status={"conditions": [{"type": "Ready", "status": "True"}]}
            ),
            manifest(
                "v1", "Pod", name, namespace, metadata=meta, spec={"nodeName": on}, status=running
            ),
        ]
    return Snapshot(items, ["*"], time="2027-03-01T12:00:00Z")


def notes_of(cluster, name):
    node = next(each for each in cluster.known(NODE) if each.name == name)
    return [each for each in node_notes.notes(node, cluster) if "KubeVirt" in each]


def test_harvester_refuses_migrations_of_every_node():
    cluster = outdated()
    (held,) = component_states.held(cluster)

    assert "counts pod virt-handler-b on b as out of date" in held.reason
    assert held.remedy.endswith("kubectl delete pod virt-handler-b -n harvester-system")
    assert notes_of(cluster, "a") == notes_of(cluster, "b") == [held.note]
    assert '"KubeVirt is not ready"' in held.note


def test_elsewhere_only_the_node_of_the_pod_is_concerned():
    cluster = outdated("kubevirt")

    assert (len(notes_of(cluster, "a")), len(notes_of(cluster, "b"))) == (0, 1)


def test_a_pod_is_not_deleted_that_comes_back_as_it_was():
    (held,) = component_states.held(outdated(template=False))

    assert "delete" not in held.remedy
    assert "no rollout replaces it" not in held.reason


NO_CNI = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: no CNI configuration file"
)
EARLIER = {"terminated": {"exitCode": 255, "reason": "Unknown"}}
STARTING = {"waiting": {"reason": "ContainerCreating"}}
CRASHING = {"waiting": {"reason": "CrashLoopBackOff"}}


def unnetworked(state, ready="False", message=NO_CNI):
    """Return a KubeVirt whose virt-handler on b has this state, and last ended at a boot."""
    since = {"lastTransitionTime": "2027-03-01T08:00:00Z"}
    no = {"type": "Ready", "status": "False", **since}
    node = {"conditions": [{**no, "status": ready, "message": message}]}
    waits = {"type": "Available", "status": "False", "reason": "DeploymentInProgress", **since}
    own = {"name": "virt-handler", "ready": False, "state": state, "lastState": EARLIER}
    running = {"phase": "Running", "conditions": [no], "containerStatuses": [own]}
    meta = {"labels": {"kubevirt.io": "virt-handler"}}
    handler = {"metadata": meta, "spec": {"nodeName": "b"}, "status": running}
    items = [
        manifest("kubevirt.io/v1", "KubeVirt", "kv", "kubevirt", status={"conditions": [waits]}),
        manifest("v1", "Node", "b", status=node),
        manifest("v1", "Pod", "virt-handler-b", "kubevirt", **handler),
    ]
    return Snapshot(items, ["*"], time="2027-03-01T12:00:00Z")


def test_a_pod_without_a_network_is_a_consequence_of_its_node():
    (held,) = component_states.held(unnetworked(STARTING))

    assert held.follows == "b"
    assert (
        "pod virt-handler-b does not start on b, which is not Ready for 4 h: its pod network is "
        "not up"
    ) in held.reason
    assert "255" not in held.reason
    assert held.remedy.startswith("repair the pod network there")


@pytest.mark.parametrize(
    "cluster", [unnetworked(CRASHING), unnetworked(STARTING, "True")], ids=["crashes", "Ready"]
)
def test_a_pod_that_fails_by_itself_is_not_a_consequence_of_its_node(cluster):
    (held,) = component_states.held(cluster)

    assert not held.follows
    assert "which is not Ready" not in held.reason


def test_an_end_before_the_present_start_is_not_its_cause():
    (held,) = component_states.held(unnetworked(STARTING, "True"))

    assert "exit code" not in held.reason
    assert "--previous" not in held.remedy
