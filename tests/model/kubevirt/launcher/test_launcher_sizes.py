"""What decides on the requests of a launcher pod, so that they can be remembered."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.upstream.launcher_cases import case
from tests.upstream.launcher_pods import as_written, surroundings
from virt_admit.kube.cache import ClusterCache, KindStore, StoreState
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_resources


def without_each(value: Any) -> Iterator[Any]:
    """Yield copies of a JSON value, each without one of its fields or items, at any depth."""
    for key in (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    ):
        rest = copy.copy(value)
        del rest[key]
        yield rest
        for less in without_each(value[key]):
            rest = copy.copy(value)
            rest[key] = less
            yield rest


@pytest.mark.parametrize("part", range(4))
def test_vms_of_different_requests_differ_in_what_is_remembered(part):
    changed = 0
    for seed in range(part, 160, 4):
        given = case(seed)
        cluster = Snapshot(map(Object, surroundings(given)), complete=["*"])
        whole = as_written(given).data
        sizes = {}
        for obj in map(
            Object, (whole, {**whole, "status": {"phase": "Running"}}, *without_each(whole))
        ):
            vmi = expand(obj, cluster)
            requests = launcher_resources.pod(vmi, cluster).requests
            assert sizes.setdefault(launcher_resources.sizing(vmi), requests) == requests, (
                seed,
                obj.data,
            )
            if not any(launcher_resources.unseen(vmi, cluster)):
                assert launcher_resources.certain_requests(vmi, cluster) == requests
        changed += len(sizes) - 1
    assert changed > 400


def vmi(name: str = "db", claim: str = "data", mac: str = "02:00:00:00:00:01") -> Object:
    interface = {"name": "net", "masquerade": {}, "macAddress": mac}
    disks = [{"name": "disk", "disk": {"bus": "virtio"}, "serial": name}]
    domain = {"memory": {"guest": "4Gi"}, "devices": {"disks": disks, "interfaces": [interface]}}
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}]
    metadata = {
        "name": name,
        "namespace": "shop",
        "labels": {"name": name},
        "annotations": {"owner": name},
    }
    spec = {"domain": domain, "volumes": volumes, "networks": [{"name": "net", "pod": {}}]}
    version = "kubevirt.io/v1"
    return Object(
        {
            "apiVersion": version,
            "kind": "VirtualMachineInstance",
            "metadata": metadata,
            "spec": spec,
        }
    )


def test_vms_of_one_template_are_remembered_once():
    cluster = Snapshot([])
    one, other = (
        launcher_resources.sizing(expand(each, cluster))
        for each in (vmi(), vmi("web", "x", "02:00:00:00:00:02"))
    )
    assert one == other


def test_what_is_remembered_ends_with_the_settings_of_kubevirt():
    cluster = ClusterCache([KindStore(KUBEVIRT)])
    given = expand(vmi(), cluster)
    with pytest.raises(Unseen):
        launcher_resources.certain_requests(given, cluster)
    store = cluster.stores[KUBEVIRT]
    store.replace({}, StoreState.LISTED)
    before = launcher_resources.certain_requests(given, cluster)["memory"]
    developer = {"memoryOvercommit": 200}
    store.upsert(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {"configuration": {"developerConfiguration": developer}},
            "status": {"phase": "Deployed"},
        }
    )
    assert launcher_resources.certain_requests(given, cluster)["memory"] == before - 2**31
