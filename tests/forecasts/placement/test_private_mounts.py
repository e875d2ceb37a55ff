"""Containers that are not created, as a mount of their node is not shared."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.kubelets import private_mounts
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE, POD

SAID = 'failed to generate spec: path "/var/run/kubevirt" is mounted on "/" but it is not a shared '


def node(name, system):
    info = {"osImage": system} if system else {}
    return manifest("v1", "Node", name, status={"nodeInfo": info})


def handler(on, said="", *, ready="False"):
    """Return a pod of virt-handler whose container waits with these words."""
    owner = {"kind": "DaemonSet", "name": "virt-handler", "uid": "u", "controller": True}
    waits = {"waiting": {"reason": "CreateContainerError", "message": said}} if said else {}
    boxes = [{"name": "virt-handler", "state": waits}]
    since = {"type": "Ready", "status": ready, "lastTransitionTime": "2027-01-01T10:00:00Z"}
    return manifest(
        *("v1", "Pod", f"virt-handler-{on}", "kubevirt"),
        metadata={"ownerReferences": [owner]},
        spec={"nodeName": on, "containers": [{"name": "virt-handler"}]},
        status={"phase": "Pending", "conditions": [since], "containerStatuses": boxes},
    )


def cluster(*objects):
    nodes = [node("a", "Alpine Linux v3.17"), node("b", "Ubuntu 22.04.3 LTS")]
    return Snapshot([*nodes, *objects], complete=["*"], time="2027-01-01T12:00:00Z")


@pytest.mark.parametrize(
    ("said", "mode", "path"),
    [
        (f"{SAID}mount", "Bidirectional", "/var/run/kubevirt"),
        ("path / is mounted on / but it is not a shared or slave mount", "HostToContainer", "/"),
    ],
)
def test_a_mount_that_is_not_shared(said, mode, path):
    own = handler("a", said)
    where = cluster(own, handler("b", ready="True"))
    for why, remedy in (
        (broken_pods.of_pod(own, where).why, broken_pods.of_pod(own, where).remedy),
        (pod_starts.fault(own, where).words, pod_starts.fault(own, where).remedy),
    ):
        assert why == (
            f"CreateContainerError: container virt-handler needs mountPropagation {mode} for "
            f"{path}, but mount / of a is not shared (osImage Alpine Linux v3.17, while it works "
            "on Ubuntu 22.04.3 LTS)"
        )
        assert remedy.startswith('run "mount --make-rshared /" on a, also at each boot')


@pytest.mark.parametrize("others", [(), (handler("b"),), (handler("c", ready="True"),)])
def test_systems_on_which_it_works_are_those_of_ready_pods(others):
    own = handler("a", f"{SAID}mount")
    assert private_mounts.of_pod(own, cluster(own, *others)).reason.endswith(
        "but mount / of a is not shared (osImage Alpine Linux v3.17)"
    )


def test_many_pods_are_gone_through_once():
    class Counting(Snapshot):
        asked = 0

        def known(self, kind, namespace=None):
            self.asked += kind is POD
            return super().known(kind, namespace)

    own = [handler(f"n{number}", f"{SAID}mount") for number in range(3)]
    found = Counting([*own, *cluster().known(NODE)], complete=["*"])
    assert all(private_mounts.of_pod(each, found) for each in own)
    assert found.asked == 1


@pytest.mark.parametrize("said", ["", "failed to create shim task: context deadline exceeded"])
def test_another_error_of_a_container(said):
    own = handler("a", said)
    assert private_mounts.of_pod(own, cluster(own)) is None
