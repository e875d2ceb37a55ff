"""A program of a node that runs while an init container has to write it."""

import pytest

from tests.builders import manifest
from virt_admit.model.evidence import busy_programs
from virt_admit.model.messages import command_of

SAID = "cp: cannot create regular file '/host/opt/cni/bin/cni-x': Text file busy\n"
ON_HOST = "-- chroot /host mv /var/lib/cni/bin/cni-x /var/lib/cni/bin/cni-x.old"
ROOT = {"name": "root", "mountPath": "/host"}
BIN = {"name": "bin", "mountPath": "/host/opt/cni/bin"}
ELSEWHERE = {"name": "bin", "mountPath": "/host/opt"}


def remedy(*mounts, said=SAID, node="n1"):
    """Return the remedy for the container ``install``; another one has other mounts."""
    boxes = [
        {"name": "other", "volumeMounts": [ELSEWHERE]},
        {"name": "install", "volumeMounts": list(mounts)},
    ]
    volumes = [
        {"name": "root", "hostPath": {"path": "/"}},
        {"name": "bin", "hostPath": {"path": "/var/lib/cni/bin"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    spec = {"initContainers": boxes, "volumes": volumes, **({"nodeName": node} if node else {})}
    pod = manifest("v1", "Pod", "agent-1", "kube-system", spec=spec)
    return busy_programs.remedy(pod, "install", said)


@pytest.mark.parametrize(
    "mounts",
    [
        [BIN],
        [ROOT, BIN],  # the deeper one is what the container sees
        [BIN, ROOT],
        [{"name": "root", "mountPath": "/host/opt/cni/bin", "subPath": "var/lib/cni/bin"}],
    ],
)
def test_the_file_is_renamed_by_its_name_on_the_node(mounts):
    found = remedy(*mounts)
    assert found.startswith("on n1, rename (mv) /var/lib/cni/bin/cni-x, which a process there")
    assert found.endswith("; then delete pod agent-1 (kubectl delete pod agent-1 -n kube-system)")
    assert command_of(found).endswith(ON_HOST)


def test_mounts_that_are_not_known():
    found = remedy()
    assert "rename (mv) /host/opt/cni/bin/cni-x (as the pod sees it)" in found
    assert "chroot" not in found  # a debug pod has the files of the node below /host too


@pytest.mark.parametrize(
    "mounts",
    [
        [ROOT, {"name": "scratch", "mountPath": "/host/opt/cni"}],
        [{**BIN, "subPathExpr": "$(NODE)"}],
        [{"name": "bin", "mountPath": "/host/opt/cni/bi"}],  # the file is in the image
    ],
)
def test_a_file_that_is_not_known_to_be_on_the_node(mounts):
    assert not remedy(*mounts)


@pytest.mark.parametrize(
    "file", ["/host/usr/bin/kubelet", "/host/opt/cni/bin/../../../usr/sbin/init"]
)
def test_a_file_that_is_no_plugin(file):
    said = f"open {file}: text file busy"
    assert not remedy(ROOT, said=said)
    assert not remedy(said=said)


@pytest.mark.parametrize(
    "said", ["", "Text file busy", "cp: '/host/opt/cni/bin/cni-x': No space left"]
)
def test_another_error(said):
    assert not remedy(BIN, said=said)


def test_a_pod_without_a_node():
    assert not remedy(BIN, node="")
