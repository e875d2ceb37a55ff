"""An NFS server that refuses a node."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.components.drivers import refused_mounts
from virt_admit.forecasts.placement.components.drivers.refused_mounts import RefusedMount
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of

SAID = "mount.nfs: access denied by server while mounting 10.0.0.5:/srv/a"


def volumes(
    name: str, node: str, spec: dict[str, object], phase: str = "Running", *, made: bool = True
) -> list[Object]:
    claim = [{"name": "d", "persistentVolumeClaim": {"claimName": name}}]
    return [
        manifest(
            "v1",
            "Pod",
            name,
            "shop",
            spec={"nodeName": node, "volumes": claim},
            status={"phase": phase},
        ),
        manifest("v1", "PersistentVolumeClaim", name, "shop", spec={"volumeName": f"pv-{name}"}),
        manifest("v1", "PersistentVolume", f"pv-{name}", spec=spec, metadata=MADE if made else {}),
    ]


MADE = {"annotations": {"pv.kubernetes.io/provisioned-by": "example.com/nfs"}}


def in_tree(path: str, server: str = "10.0.0.5") -> dict[str, object]:
    return {"nfs": {"server": server, "path": path}}


def by_csi(share: str, below: str = "") -> dict[str, object]:
    attributes = {"server": "10.0.0.5", "share": share, "subDir": below}
    return {"csi": {"driver": "nfs.csi.k8s.io", "volumeAttributes": attributes}}


def found(*objects: Object, said: str = SAID) -> RefusedMount | None:
    address = {"addresses": [{"type": "InternalIP", "address": "10.0.7.23"}]}
    node = manifest("v1", "Node", "new", status=address)
    return refused_mounts.of(said, "new", Snapshot([node, *objects], ["*"]))


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        (in_tree("/srv/b"), True),
        (in_tree("/srv/a"), False),
        (by_csi("/srv", "b"), True),
        (by_csi("/srv/a/"), False),
    ],
)
def test_only_one_node_is_refused(spec: dict[str, object], made: bool) -> None:
    refused = found(*volumes("b", "old", spec, made=made))
    assert refused is not None
    assert refused.of_node
    assert refused.reason == (
        "NFS server 10.0.0.5 refuses new (10.0.7.23), while old has a volume of this export mounted"
    )
    assert command_of(refused.remedy) == "kubectl cordon new"


@pytest.mark.parametrize(
    "objects",
    [
        [],
        volumes("b", "old", in_tree("/srv/b"), "Pending"),
        volumes("b", "old", in_tree("/srv/b", "10.0.0.6")),
        volumes("b", "old", in_tree("/srv/b"), made=False),
        volumes("b", "old", in_tree("/srv/team/b")),
        volumes("b", "old", by_csi("/srv/b")),
        volumes("b", "new", in_tree("/srv/b")),
        [*volumes("b", "new", in_tree("/srv/b")), *volumes("c", "old", in_tree("/srv/c"))],
    ],
)
def test_no_other_node_shows_that_the_export_is_served(objects: list[Object]) -> None:
    refused = found(*objects)
    assert refused is not None
    assert not refused.of_node
    assert refused.remedy == "on 10.0.0.5, export /srv/a to new (10.0.7.23)"


def test_a_server_that_exports_its_root() -> None:
    said = "mount.nfs: access denied by server while mounting 10.0.0.5:/pvc-1"
    refused = found(*volumes("b", "old", by_csi("/", "pvc-2")), said=said)

    assert refused is not None
    assert refused.of_node


def test_another_error() -> None:
    assert found(said="mount.nfs: Connection timed out") is None
