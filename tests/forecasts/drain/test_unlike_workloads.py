"""A VM waits for a GPU that a node has, but that the GPU operator has set up for containers."""

import pytest

from tests.forecasts.drain.test_start_obstacles import anywhere, stuck
from tests.healthy.parts import obj
from tests.incidents.machines import find, guest
from tests.incidents.starts import GPU, gpu, starting, with_gpu
from virt_admit.forecasts.drain.starts.devices import unlike_workloads
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

USE = "nvidia.com/gpu.workload.config"
MODEL = f"NVIDIA-{GPU.rpartition('_')[2]}"


def policy(default="container", enabled=True):
    sandbox = {"defaultWorkload": default, "enabled": enabled}
    spec = {"sandboxWorkloads": sandbox}
    return obj("ClusterPolicy", "nvidia.com/v1", "gpus", None, spec=spec)


def waiting(labels, *more, theirs="vm-passthrough", free="1", product=MODEL):
    """Return what keeps a VM off w1, while the one device of w2 is in use."""
    items = gpu("0", external=True) + starting("cad", "Scheduling", **with_gpu())
    items += guest("render", "w2", **with_gpu())
    anywhere(items, "cad", "render")
    here, other = (find(items, "Node", name) for name in ("w1", "w2"))
    del here["status"]["allocatable"][GPU]
    here["status"]["allocatable"]["nvidia.com/gpu"] = free
    here["metadata"]["labels"] |= {"nvidia.com/gpu.product": product, **labels}
    other["status"]["allocatable"] |= {GPU: "1"}
    other["metadata"]["labels"] |= {USE: theirs} if theirs else {}
    return stuck([*items, *more], "cad")


def test_a_node_without_the_label_of_its_siblings():
    found = waiting({}, policy())

    assert found.reason == (
        f"w1 has 1 {MODEL} GPU free, offered as nvidia.com/gpu instead of {GPU}: it lacks label "
        f"{USE}=vm-passthrough of w2, and ClusterPolicy gpus has sandboxWorkloads.defaultWorkload "
        f"container; the only {GPU} of w2 is in use by VM vms/render"
    )
    assert found.remedy == (
        "let the GPU operator set w1 up like w2, unless its GPUs are for containers: kubectl label "
        f"node w1 {USE}=vm-passthrough"
    )


@pytest.mark.parametrize(
    ("labels", "policies", "cluster"),
    [
        ({USE: "container"}, [policy()], {}),  # a choice
        ({}, [policy("vm-passthrough")], {}),  # it is set up like the others
        ({}, [policy(enabled=False)], {}),  # the label has no effect
        ({}, [], {}),  # no GPU operator may read it
        ({}, [policy()], {"theirs": ""}),
        ({}, [policy()], {"free": "0"}),
        ({}, [policy()], {"product": "Tesla-T4"}),  # another model
    ],
)
def test_a_node_that_is_not_to_blame(labels, policies, cluster):
    found = waiting(labels, *policies, **cluster)

    assert found.reason.startswith(f"the only {GPU} of w2 is in use by VM vms/render; w1")
    assert "label" not in found.remedy


@pytest.mark.parametrize("device", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"])
def test_a_pod_that_uses_one_of_several_gpus(device):
    """The label would take the driver off the GPUs that are in use too."""
    using = {"containers": [{"name": "c", "resources": {"requests": {device: "1"}}}]}
    pod = obj("Pod", "v1", "train", "vms", spec={"nodeName": "w1", **using})

    assert USE not in waiting({}, policy(), pod, free="8").reason
    assert USE in waiting({}, policy(), free="8").reason


@pytest.mark.parametrize(("read", "told"), [("*", True), ("nodes", False)])
def test_pods_that_were_not_read_may_use_the_gpus(read, told):
    node = {"allocatable": {"nvidia.com/gpu": "8"}}
    other = {"kubevirt.io/schedulable": "true", USE: "vm-passthrough"}
    objects = [
        obj("Node", "v1", "w1", None, status=node),
        obj("Node", "v1", "w2", None, status={"allocatable": {GPU: "8"}}),
        policy(),
    ]
    objects[0]["metadata"]["labels"] = {"kubevirt.io/schedulable": "true"}
    objects[1]["metadata"]["labels"] = other
    cluster = Snapshot(list(map(Object, objects)), [read])

    assert (unlike_workloads.of_device("w1", GPU, cluster) is not None) is told
