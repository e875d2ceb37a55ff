"""A VM waits for a GPU that a node has, but that the GPU operator has set up for containers."""

import pytest

from tests.forecasts.drain.test_start_obstacles import anywhere, stuck
from tests.healthy.parts import obj
from tests.incidents.machines import find, guest
from tests.incidents.starts import GPU, gpu, starting, with_gpu

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


def test_a_policy_that_is_not_known():
    assert "defaultWorkload" not in waiting({}).reason
    assert f"it lacks label {USE}=vm-passthrough of w2" in waiting({}).reason


@pytest.mark.parametrize(
    ("labels", "policies", "cluster"),
    [
        ({USE: "container"}, [policy()], {}),  # a choice
        ({}, [policy("vm-passthrough")], {}),  # it is set up like the others
        ({}, [policy(enabled=False)], {}),  # the label has no effect
        ({}, [policy()], {"theirs": ""}),
        ({}, [policy()], {"free": "0"}),
        ({}, [policy()], {"product": "Tesla-T4"}),  # another model
    ],
)
def test_a_node_that_is_not_to_blame(labels, policies, cluster):
    found = waiting(labels, *policies, **cluster)

    assert found.reason.startswith(f"the only {GPU} of w2 is in use by VM vms/render; w1")
    assert "label" not in found.remedy


def test_gpus_that_containers_use():
    using = {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    pod = obj("Pod", "v1", "train", "vms", spec={"nodeName": "w1", **using})

    assert USE not in waiting({}, policy(), pod).reason
