"""What scan and the forecasts read besides rules: events by selectors, and kinds by discovery,
of a real API server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.waiting import eventually
from virt_admit.kube import further_kinds
from virt_admit.kube.bounded_events import BoundedEvents
from virt_admit.kube.cache import ClusterCache
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Unseen

GROUP = "storage.example.com"
POOL = kinds.guess(f"{GROUP}/v1", "Pool")


def definition() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "pools", "singular": "pool", "kind": "Pool", "listKind": "PoolList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"pools.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": [version | {"subresources": {"status": {}}}],
        },
    }


def event(name: str, **fields: Any) -> dict[str, Any]:
    about = {"kind": "Pool", "name": "fast", "namespace": "default"}
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": about,
        **fields,
    }


@pytest.fixture(scope="module")
def plane(crds: ControlPlane) -> Iterator[ControlPlane]:
    crds.kubectl("apply", "-f", "-", input=json.dumps(definition()), check=True)
    pool = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Pool",
        "metadata": {"name": "fast", "namespace": "default"},
    }
    eventually(lambda: crds.kubectl("apply", "-f", "-", input=json.dumps(pool)).returncode == 0)
    events = (
        event("warned", type="Warning", reason="Failed", message="no space"),
        event("paused", type="Normal", reason="UpdatePaused", message="a VM runs there"),
        event(
            "evicted", type="Normal", reason="Any", source={"component": "sigs.k8s.io/descheduler"}
        ),
        event("usual", type="Normal", reason="Pulled", message="an image"),
    )
    for each in events:
        crds.kubectl("create", "-f", "-", input=json.dumps(each), check=True)
    yield crds
    crds.kubectl("delete", "event", *(each["metadata"]["name"] for each in events), check=True)
    crds.kubectl("delete", "crd", f"pools.{GROUP}", check=True)


def test_warnings_and_the_other_events_that_are_named(plane: ControlPlane) -> None:
    events = BoundedEvents()
    events.read(ApiClient.connect(str(plane.kubeconfig)))
    assert events.missing == ""
    names = {each.name for each in events if each.at("involvedObject", "name").text == "fast"}
    assert names == {"warned", "paused", "evicted"}


def test_every_custom_resource_is_found(plane: ControlPlane) -> None:
    cluster = ClusterCache(())
    assert (
        further_kinds.read(ApiClient.connect(str(plane.kubeconfig), connections=4), cluster) == ""
    )
    assert [each.name for each in cluster.list(POOL)] == ["fast"]
    assert list(cluster.list(kinds.guess("absent.example.com/v1", "Any"))) == []
    groups = {kind.group for kind in cluster.stores}
    assert {"kubevirt.io", GROUP, "scheduling.k8s.io"} <= groups
    assert not {"", "apps", "apiextensions.k8s.io", "rbac.authorization.k8s.io"} & groups
    with pytest.raises(Unseen):
        cluster.get(kinds.guess("v1", "Secret"), "default", "any")


def test_nothing_may_be_listed(plane: ControlPlane) -> None:
    """It is said, and nothing fails."""
    plane.service_account_token("default", "reads-nothing")
    api = ApiClient.connect(
        str(plane.service_account_kubeconfig("default", "reads-nothing")), connections=4
    )
    events, cluster = BoundedEvents(), ClusterCache(())
    events.read(api)
    assert events.missing == "events, which this account may not list"
    assert "that this account may not list" in further_kinds.read(api, cluster)
    with pytest.raises(Unseen):
        list(cluster.list(POOL))
