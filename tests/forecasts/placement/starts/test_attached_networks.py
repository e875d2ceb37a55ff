"""A sandbox error of a secondary network belongs to its NetworkAttachmentDefinition."""

import json

import pytest

from tests.builders import manifest, warning
from tests.forecasts.drain.vm_motion import ago
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes.cluster import Snapshot

K3S = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
OWN = f"{K3S}/whereabouts.d/whereabouts.conf"
SAID = (
    'Failed to create pod sandbox: plugin type="multus" name="multus-cni-network" failed (add): '
    '[shop/db/u1:{0}]: error adding container to network "{0}": {1}'
)


def fault(error="config file not found", ipam=None, folder=K3S, network="lan", config=None):
    ipam = {"type": "whereabouts"} | (ipam or {})
    config = config or {"name": "lan", "type": "bridge", "ipam": ipam}
    spec = {"config": json.dumps(config)}
    lan = manifest("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "lan", "shop", spec=spec)
    box = {"name": "w", "volumeMounts": [{"name": "net", "mountPath": "/host/etc/cni/net.d"}]}
    pods = {"containers": [box], "volumes": [{"name": "net", "hostPath": {"path": folder}}]}
    template = {"template": {"spec": pods}}
    daemon = manifest("apps/v1", "DaemonSet", "whereabouts", "kube-system", spec=template)
    asked = json.dumps([{"name": "lan", "namespace": "shop", "interface": "net1"}])
    metadata = {
        "annotations": {"k8s.v1.cni.cncf.io/networks": asked},
        "labels": {"kubevirt.io": "virt-launcher"},
        "creationTimestamp": ago(900),
    }
    status = {"phase": "Pending"}
    pod = manifest(
        "v1", "Pod", "db", "shop", metadata=metadata, spec={"nodeName": "a"}, status=status
    )
    said = warning(pod, "FailedCreatePodSandBox", SAID.format(network, error), ago(10))
    objects = [lan, pod, said, *([daemon] if folder else [])]
    return pod_starts.fault(pod, Snapshot(objects, time=ago(0)))


def test_whereabouts_without_its_path_on_a_node_with_another_folder():
    found = fault()

    assert found.words == (
        "NetworkAttachmentDefinition shop/lan has ipam whereabouts without configuration_path, and "
        "the plugin finds no settings in /etc/cni/net.d and /etc/kubernetes/cni/net.d on a: config "
        f"file not found. DaemonSet kube-system/whereabouts writes them to {K3S}"
    )
    assert found.remedy.startswith(
        f'set ipam.configuration_path to "{OWN}" in spec.config of NetworkAttachmentDefinition '
        "shop/lan: kubectl edit networkattachmentdefinition lan -n shop"
    )
    assert not found.of_node


@pytest.mark.parametrize(
    ("other", "remedy"),
    [
        ({"folder": "/etc/cni/net.d"}, "see whether the pod of DaemonSet kube-system/whereabouts"),
        ({"folder": ""}, "set ipam.configuration_path in spec.config"),
        ({"ipam": {"configuration_path": OWN}}, "see why the pod of DaemonSet"),
        ({"ipam": {"configuration_path": "/old.conf"}}, f'set ipam.configuration_path to "{OWN}"'),
        ({"error": 'failed to find plugin \\"ovs\\" in path [/opt/cni/bin]'}, "install network"),
        ({"error": "Link not found"}, "correct what NetworkAttachmentDefinition shop/lan"),
        ({"ipam": {"type": "static"}}, "correct what NetworkAttachmentDefinition shop/lan"),
        ({"network": "cbr0"}, "repair the network plugin multus on a"),
    ],
)
def test_other_errors_of_a_network(other, remedy):
    assert fault(**other).remedy.startswith(remedy)
