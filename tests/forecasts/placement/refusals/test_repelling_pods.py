"""One required anti-affinity is one cause, on however many nodes it refuses a VM."""

import pytest

from tests.builders import SCHEDULABLE, manifest
from tests.forecasts.drain.vm_motion import cluster, node, vmi
from virt_admit.forecasts.placement import no_target

HOST = "kubernetes.io/hostname"
RULE = [{"labelSelector": {"matchLabels": {"app": "etcd"}}, "topologyKey": HOST}]
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": RULE}}
OTHERS = ("b", "c", "d")


def pod(name, on, *, rule):
    spec = {"nodeName": on, "containers": [{"name": "main"}]}
    spec |= {"affinity": APART} if rule else {}
    labels = {"labels": {"app": "etcd"}}
    return manifest(
        "v1", "Pod", name, "shop", metadata=labels, spec=spec, status={"phase": "Running"}
    )


def host(name):
    labelled = node(name)
    labelled.data["metadata"]["labels"] = {SCHEDULABLE: "true", HOST: name}
    return labelled


@pytest.mark.parametrize(
    ("own", "theirs", "told"),
    [
        (True, True, "anti-affinity to pods shop/etcd-b (b), shop/etcd-c (c), shop/etcd-d (d)"),
        (True, False, "anti-affinity to pods shop/etcd-b (b), shop/etcd-c (c), shop/etcd-d (d)"),
        (False, True, "anti-affinity of pods shop/etcd-b (b), shop/etcd-c (c), shop/etcd-d (d)"),
    ],
)
def test_pods_that_keep_a_vm_off_are_one_cause(own, theirs, told):
    guest = vmi(metadata={"labels": {"app": "etcd"}}, spec={"affinity": APART} if own else {})
    pods = [pod(f"etcd-{on}", on, rule=theirs) for on in OTHERS]
    snapshot = cluster(guest, *pods, *map(host, ("a", *OTHERS)), nodes=())
    assert no_target.nowhere_to_go(guest, snapshot).reason == f"{no_target.NOWHERE}{told}"


def test_another_cause_is_told_beside_it_and_one_pod_as_before():
    small = host("c")
    small.data["status"]["allocatable"]["memory"] = "1Gi"
    guest = vmi(metadata={"labels": {"app": "etcd"}}, spec={"affinity": APART})
    nodes = (host("a"), host("b"), small)
    found = no_target.nowhere_to_go(
        guest, cluster(guest, pod("etcd-b", "b", rule=True), *nodes, nodes=())
    )
    told = found.reason.removeprefix(no_target.NOWHERE)
    assert told.startswith("anti-affinity to pod shop/etcd-b (b), memory: ")
    assert told.endswith(" missing on c")
