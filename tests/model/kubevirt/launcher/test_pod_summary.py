"""What the webhook keeps of a pod: the same pod for placement, in few bytes."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.builders import manifest
from virt_admit.kube.stores import lookup_stores
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher.pod_summary import decompress, summarize
from virt_admit.model.scheduler import pod_size, pods
from virt_admit.model.scheduler.resources import amount, pod_requests
from virt_admit.rules import load_rules


def container(name, cpu, memory):
    devices = {f"devices.kubevirt.io/{device}": "1" for device in ("kvm", "tun", "vhost-net")}
    resources = {
        "requests": {"cpu": cpu, "memory": memory, "ephemeral-storage": "50M"},
        "limits": devices,
    }
    return {
        "name": name,
        "image": "registry.example.com/virt-launcher@sha256:0",
        "resources": resources,
    }


REPELLING = {
    "labelSelector": {"matchLabels": {"app": "web"}},
    "topologyKey": "kubernetes.io/hostname",
}
CONTAINERS = [container("compute", "200m", "2294Mi"), container("guest-console-log", "5m", "35M")]
LAUNCHER = manifest(
    "v1",
    "Pod",
    "virt-launcher-web-17-abcde",
    "shop",
    metadata={
        "labels": {
            "kubevirt.io": "virt-launcher",
            "kubevirt.io/created-by": "8f6d1c8e-5a7c-4b8e-9d11-b9f0a1b2c3d4",
            "vm.kubevirt.io/name": "web-17",
            "vmi.kubevirt.io/id": "web-17",
            "app": "web",
        },
        "ownerReferences": [
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "name": "web-17",
                "controller": True,
            }
        ],
    },
    spec={
        "nodeName": "worker-17.example.com",
        "nodeSelector": {
            "kubernetes.io/arch": "amd64",
            "kubevirt.io/schedulable": "true",
            "cpu-model-migration.node.kubevirt.io/Icelake-Server": "true",
        },
        "containers": CONTAINERS,
        "initContainers": [container("container-disk-binary", "10m", "1M")],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 300}
        ],
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [REPELLING]}
        },
        "volumes": [
            {"name": "private", "emptyDir": {}},
            {"name": "root", "persistentVolumeClaim": {"claimName": "web-17-root"}},
        ],
        "overhead": {"memory": "1Mi"},
    },
    status={
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Initialized", "status": "True"},
        ],
        "containerStatuses": [
            {
                "name": "compute",
                "resources": {"requests": {"memory": "3Gi"}},
                "allocatedResources": {"cpu": "300m"},
            }
        ],
    },
)


def in_webhook(pod):
    """The pod as the informer of the webhook stores it, and the bytes that it stores."""
    (store,) = [store for store in lookup_stores(load_rules().at_admission) if store.kind is POD]
    by_namespace = {}
    store.add(by_namespace, pod.data)
    ((packed,),) = [tuple(named.values()) for named in by_namespace.values()]
    return Object(json.loads(decompress(packed))), packed


def facts(pod):
    """What placement reads of a pod that runs."""
    read = pods.read(pod)
    requests = {name: value for name, value in read.requests.items() if value}
    return read.node, read.labels, requests, read.affinity, read.anti_affinity, read.claims


def test_placement_reads_the_same_of_a_launcher_pod():
    kept, _ = in_webhook(LAUNCHER)
    kept.data["metadata"] |= {"name": LAUNCHER.name, "namespace": LAUNCHER.namespace}

    assert facts(kept) == facts(LAUNCHER)
    assert facts(kept)[2]["memory"] == 3 * 2**30 + 35 * 10**6 + 2**20
    assert dict(kept.at("spec", "nodeSelector").texts) == {
        "cpu-model-migration.node.kubevirt.io/Icelake-Server": "true"
    }


def test_a_launcher_pod_takes_at_most_700_bytes():
    _, text = in_webhook(LAUNCHER)
    assert len(text) <= 700


def test_an_owner_with_another_name_than_the_label_is_kept():
    given = Object(
        {
            **LAUNCHER.data,
            "metadata": {**LAUNCHER.data["metadata"], "labels": {"kubevirt.io": "virt-launcher"}},
        }
    )
    assert in_webhook(given)[0].metadata["ownerReferences"].value == [
        {"kind": "VirtualMachineInstance", "name": "web-17"}
    ]
    assert not in_webhook(LAUNCHER)[0].metadata["ownerReferences"].present


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_not_kept(phase):
    assert summarize({**LAUNCHER.data, "status": {"phase": phase}}) is None


QUANTITY = st.sampled_from(["100m", "1", "2Gi", "1500M", 3, "0", "nonsense", None])
RESOURCES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu", "hugepages-2Mi"]), QUANTITY
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from("abc")},
    optional={
        "resources": st.fixed_dictionaries(
            {}, optional={"requests": RESOURCES, "limits": RESOURCES}
        ),
        "restartPolicy": st.sampled_from(["Always", "OnFailure"]),
        "allocatedResources": RESOURCES,
    },
)


NOTHING_REQUESTED = {
    "name": "a",
    "resources": {"requests": {"cpu": "0"}, "limits": {"cpu": "100m"}},
}


@example([], [NOTHING_REQUESTED], [], {}, {})
@given(
    st.lists(CONTAINER, max_size=3),
    st.lists(CONTAINER, max_size=3),
    st.lists(CONTAINER, max_size=3),
    RESOURCES,
    st.fixed_dictionaries({}, optional={"requests": RESOURCES}),
)
def test_the_requests_stay_the_same(containers, init, statuses, overhead, of_pod):
    spec = {
        "containers": containers,
        "initContainers": init,
        "overhead": overhead,
        "resources": of_pod,
    }
    pod = Object(
        {"metadata": {"name": "a"}, "spec": spec, "status": {"containerStatuses": statuses}}
    )

    kept = Object(summarize(pod.data))

    assert _requested(kept) == _requested(pod)
    limits = {
        name: value
        for name, value in pod_size.read(pod["spec"]).limits.items()
        if value and name in ("cpu", "memory")
    }
    assert pod_size.read(kept["spec"]).limits == limits


def _requested(pod):
    return {name: n for name, n in pod_requests(pod["spec"], pod["status"]).items() if n}


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(JSON, JSON, JSON)
def test_a_hostile_pod_never_raises(labels, spec, status):
    kept = summarize(
        {
            "metadata": {"name": "a", "labels": labels, "ownerReferences": spec},
            "spec": spec,
            "status": status,
        }
    )
    assert kept is None or kept["metadata"]["name"] == "a"


def test_a_quantity_that_is_not_valid_does_not_change_equal_ones():
    assert amount("example.com/gpu", True) == 0
    assert amount("example.com/gpu", 1) == 1
