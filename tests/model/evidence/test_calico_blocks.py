"""Blocks of addresses of Calico: those of nodes that are gone are named, and no others."""

import pytest

from tests.builders import manifest
from virt_admit.model.evidence import calico_blocks, full_ranges
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of

SAID = (
    'plugin type="calico" failed (add): failed to request IPv4 addresses: Assigned 0 out of 1 '
    "requested IPv4 addresses; No more free affine blocks and strict affinity enabled"
)
CRD = "crd.projectcalico.org/v1"
LISTED = "kubectl get pods -A -l k8s-app=calico-kube-controllers"
NODES = [manifest("v1", "Node", name) for name in ("n1", "n2")]
POOL = manifest(CRD, "IPPool", "pods", spec={"cidr": "10.1.0.0/25"})


def affinity(node, cidr, **spec):
    return manifest(
        CRD, "BlockAffinity", f"{node}-{cidr[-5]}", spec={"node": node, "cidr": cidr, **spec}
    )


def block(cidr, *holders):
    attributes = [{"secondary": {"node": each}} for each in holders]
    return manifest(CRD, "IPAMBlock", f"b{cidr[-5]}", spec={"cidr": cidr, "attributes": attributes})


FIRST, SECOND = "10.1.0.0/26", "10.1.0.64/26"


def found(*objects, complete=("*",), said=SAID):
    return full_ranges.of(said, "n2", Snapshot([POOL, *NODES, *objects], complete))


def controllers(ready):
    metadata = {"labels": {"k8s-app": "calico-kube-controllers"}}
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return manifest("v1", "Pod", "c-1", "kube-system", metadata=metadata, status=status)


def test_a_node_that_is_gone_has_a_block():
    full = found(affinity("n1", FIRST), affinity("old", SECOND))
    assert full.reason == (
        "Calico has no free block of addresses for n2: all 2 blocks of IPPool pods (10.1.0.0/25) "
        "are taken, 1 of them by nodes that do not exist (old)"
    )
    assert full.of_node
    assert full.remedy.startswith("deploy calico-kube-controllers, which then releases")
    assert "IPAMBlock" not in full.remedy
    assert command_of(full.remedy) == LISTED


@pytest.mark.parametrize(
    ("ready", "words", "command"),
    [
        ("True", "see why calico-kube-controllers does not", "kubectl logs c-1 -n kube-system"),
        ("False", "repair calico-kube-controllers", "kubectl describe pod c-1 -n kube-system"),
    ],
)
def test_the_controller_that_releases_it(ready, words, command):
    full = found(affinity("old", SECOND), controllers(ready))
    assert full.remedy.startswith(words)
    assert command_of(full.remedy) == command


@pytest.mark.parametrize(("holders", "offered"), [((), True), (("old",), True), (("n1",), False)])
def test_a_block_whose_address_a_pod_of_another_node_has_is_not_deleted(holders, offered):
    full = found(affinity("old", SECOND), block(SECOND, *holders))
    assert ("delete IPAMBlock" in full.remedy) is offered


@pytest.mark.parametrize(
    "address",
    [
        {"secondary": {"node": "old", "vmiuid": "1"}},
        {"secondary": {"node": "old"}, "handle_id": "k8s-pod-network.vmi.shop.db"},
        {"secondary": {"node": "old"}, "alternate": {"node": "n1"}},
        {"secondary": None},
    ],
)
def test_a_block_with_the_address_of_a_vm_is_not_deleted(address):
    own = block(SECOND, "old")
    assert "delete IPAMBlock" in found(affinity("old", SECOND), own).remedy
    own.data["spec"]["attributes"].append(address)
    assert "delete IPAMBlock" not in found(affinity("old", SECOND), own).remedy


@pytest.mark.parametrize(
    ("affinities", "complete"),
    [
        ([affinity("n1", FIRST), affinity("n2", SECOND)], ["*"]),
        ([affinity("load-balancer", SECOND, type="virtual")], ["*"]),
        ([affinity("old", SECOND, deleted="true")], ["*"]),
        ([affinity("old", SECOND)], []),
        ([affinity("old", "10.2.0.0/26")], ["*"]),
    ],
    ids=["nodes exist", "no node", "released", "nodes are not known", "another pool"],
)
def test_no_node_is_gone(affinities, complete):
    full = found(*affinities, complete=complete)
    assert "do not exist" not in full.reason
    assert full.remedy.startswith("add an IP pool")


@pytest.mark.parametrize(
    ("uses", "counts"), [(["LoadBalancer"], False), (["Tunnel"], False), (["Workload"], True)]
)
def test_a_pool_that_is_not_for_pods_has_no_block_left_for_them(uses, counts):
    other = manifest(CRD, "IPPool", "other", spec={"cidr": "10.9.0.0/24", "allowedUses": uses})
    full = found(affinity("n1", FIRST), affinity("n2", SECOND), other)
    assert ("2 of 6 blocks" in full.reason) is counts
    assert ("all 2 blocks of IPPool pods" in full.reason) is not counts


def test_a_controller_that_could_not_be_read_may_run():
    read = ("nodes", "pods", "ippools.crd.projectcalico.org")
    full = found(affinity("old", SECOND), complete=read)
    assert full.remedy.startswith("see whether calico-kube-controllers runs")


def test_the_blocks_are_read_once_for_all_pods(monkeypatch):
    blocks, walks = calico_blocks._blocks, []
    monkeypatch.setattr(calico_blocks, "_blocks", lambda each: walks.append(each) or blocks(each))
    cluster = Snapshot([POOL, *NODES, affinity("n1", FIRST)], ["*"])
    assert {full_ranges.of(SAID, "n2", cluster).reason for _ in range(3)}
    assert len(walks) == 1


def test_no_pool_is_known():
    full = full_ranges.of(SAID, "n2", Snapshot(NODES, ["*"]))
    assert full.reason == "Calico has no free block of addresses for n2"


PER_HOST = (
    'plugin type="calico" failed (add): cannot allocate new block due to per host block limit'
)
ROOM = {"status": {"allocatable": {"pods": "110"}}}


def _config(**spec):
    return manifest(CRD, "IPAMConfig", "default", spec=spec)


def _filled(number, *, free=(), size=32, node="n2"):
    """Return a pool, and blocks of a node in it, all but some of them without a free address."""
    pool = manifest(CRD, "IPPool", "virt", spec={"cidr": "10.2.0.0/16", "blockSize": size})
    made = [pool]
    for each in range(number):
        cidr = f"10.2.{each}.0/{size}"
        own = affinity(node, cidr)
        own.data["metadata"]["name"] = f"{node}-{each}"
        spec = {"cidr": cidr, "unallocated": [0] if each in free else []}
        made += [own, manifest(CRD, "IPAMBlock", f"b-{each}", spec=spec)]
    return made


def _of_limit(*objects, complete=("*",), pods=()):
    nodes = [manifest("v1", "Node", name, **ROOM) for name in ("n1", "n2")]
    cluster = Snapshot([*nodes, *objects, *pods], complete)
    return full_ranges.of(PER_HOST, "n2", cluster), full_ranges.used_up("n2", cluster)


def test_a_node_has_as_many_blocks_of_one_address_as_it_gets():
    said, known = _of_limit(*_filled(20), _config(strictAffinity=False))
    assert said.reason == (
        "n2 has 20 blocks of 1 address each (blockSize 32 of IPPool virt), as many as Calico gives "
        "a node (20, as IPAMConfig default sets no maxBlocksPerHost), and none has a free address"
    )
    assert said.of_node
    assert known == said  # kube-scheduler goes on choosing it
    assert command_of(said.remedy) == (
        """kubectl patch ipamconfig default --type=merge -p '{"spec":{"maxBlocksPerHost":110}}'"""
    )
    assert "an IPPool with larger blocks (blockSize 26) and disable IPPool virt" in said.remedy


def test_a_limit_is_set_in_an_object_that_calico_accepts():
    said, _ = _of_limit(*_filled(20))
    given = "maxBlocksPerHost 110, autoAllocateBlocks true and strictAffinity false"
    assert said.remedy.startswith(f"make IPAMConfig default with {given}: kubectl explain ")


def test_the_nodes_are_compared_once(monkeypatch):
    read, admitted = [], calico_blocks.admitted
    monkeypatch.setattr(calico_blocks, "admitted", lambda node: read.append(node) or admitted(node))
    nodes = [manifest("v1", "Node", name, **ROOM) for name in ("n1", "n2")]
    cluster = Snapshot([*nodes, *_filled(20)], ["*"])

    assert calico_blocks.full("n2", cluster) == calico_blocks.full("n2", cluster)
    assert len(read) == len(nodes)


def test_a_limit_that_is_set():
    said, _ = _of_limit(*_filled(4, size=30), _config(maxBlocksPerHost=4))
    assert "4 blocks of 4 addresses each (blockSize 30 of IPPool virt)" in said.reason
    assert "(maxBlocksPerHost of IPAMConfig default)" in said.reason
    assert """{"maxBlocksPerHost":28}""" in said.remedy


def test_large_blocks_that_are_taken_are_checked_for_addresses_that_were_left():
    said, _ = _of_limit(*_filled(20, size=26), _config())
    assert said.remedy == "release the addresses of pods that are gone (calicoctl ipam check)"


@pytest.mark.parametrize(
    "objects",
    [
        [*_filled(19), _config()],
        [*_filled(20), _config(maxBlocksPerHost=32)],
        [*_filled(20, free=(3,)), _config()],
        [*_filled(20, node="n1"), _config()],
        [each for each in _filled(20) if each.kind != "IPAMBlock"] + [_config()],
    ],
    ids=["one block fewer", "a higher limit", "a free address", "another node", "blocks not known"],
)
def test_a_node_that_gets_an_address_or_may_get_one_is_not_called_full(objects):
    said, known = _of_limit(*objects)
    assert known is None
    assert not said.of_node
    assert said.reason == "Calico gives n2 no further block of addresses, by maxBlocksPerHost"


def test_a_limit_that_cannot_be_read_is_not_taken_as_the_default():
    assert _of_limit(*_filled(20), complete=("nodes", "pods"))[1] is None
    assert _of_limit(*_filled(20))[1] is not None


def test_a_kubelet_that_admits_no_further_pod_is_the_limit_that_counts():
    spec, status = {"nodeName": "n2"}, {"phase": "Running"}
    pods = [manifest("v1", "Pod", f"p{i}", "x", spec=spec, status=status) for i in range(110)]
    assert _of_limit(*_filled(20), _config(), pods=pods)[1] is None
