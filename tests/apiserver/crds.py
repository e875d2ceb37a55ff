"""The CustomResourceDefinitions of the product's world: the real ones where they are, permissive ones elsewhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.apiserver.control_plane import ControlPlane
from tests.paths import DATA
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind

REAL = DATA / "crds"
SERVED_SECONDS = 60.0

# As upstream defines them; without the sub-resource a status is written, and judged, with the object itself.
WITHOUT_STATUS = frozenset(
    (
        kinds.VMI,
        kinds.CDI,
        kinds.INSTANCETYPE,
        kinds.CLUSTER_INSTANCETYPE,
        kinds.PREFERENCE,
        kinds.CLUSTER_PREFERENCE,
        kinds.NAD,
    )
)
SHORT_NAMES = {
    kinds.VM: ("vm", "vms"),
    kinds.VMI: ("vmi", "vmis"),
    kinds.VMIM: ("vmim", "vmims"),
    kinds.VMIRS: ("vmirs", "vmirss"),
    kinds.POOL: ("vmpool", "vmpools"),
    kinds.KUBEVIRT: ("kv", "kvs"),
    kinds.HCO: ("hco", "hcos"),
    kinds.CDI: ("cdi", "cdis"),
    kinds.DATA_VOLUME: ("dv", "dvs"),
    kinds.MHC: ("mhc", "mhcs"),
    kinds.NHC: ("nhc",),
    kinds.NM: ("nm",),
}
WITH_SCALE = frozenset((kinds.VMIRS, kinds.POOL, kinds.MACHINE_SET))
SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.labelSelector",
}


def permissive_crds(wanted: Iterable[Kind]) -> list[dict[str, Any]]:
    """A definition for each kind that is not built in, which accepts and keeps every field."""
    return [_permissive(kind) for kind in wanted if kind.group not in kinds.BUILT_IN_GROUPS]


def real_crds() -> list[Path]:
    """The files of the upstream definitions, named ``<plural>.<group>.yaml``; none where the folder is missing."""
    return sorted(REAL.glob("*.yaml"))


def install_crds(plane: ControlPlane, wanted: Iterable[Kind] | None = None) -> None:
    """Install the definitions of these kinds, of all by default; return when kubectl can use them.

    A kind without a real definition gets a permissive one. Raises CalledProcessError if the server refuses one,
    TimeoutError if one is not served within a minute.
    """
    definitions = permissive_crds(kinds.ALL if wanted is None else wanted)
    permissive = {crd["metadata"]["name"]: crd for crd in definitions}
    real = [path for path in real_crds() if wanted is None or path.stem in permissive]
    names = {*permissive, *(path.stem for path in real)}
    for path in real:
        permissive.pop(path.stem, None)
    files = [argument for path in real for argument in ("-f", path)]
    rest = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(permissive.values())})
    plane.kubectl("apply", "--server-side", "-f", "-", *files, input=rest, check=True)
    wait_until_discovered(plane, names)


def _permissive(kind: Kind) -> dict[str, Any]:
    subresources: dict[str, Any] = {}
    if kind not in WITHOUT_STATUS:
        subresources["status"] = {}
    if kind in WITH_SCALE:
        subresources["scale"] = SCALE
    versions = [
        {
            "name": version,
            "served": True,
            "storage": version == kind.versions[0],
            "subresources": subresources,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
        for version in kind.versions
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "names": {
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "kind": kind.kind,
                "shortNames": list(SHORT_NAMES.get(kind, ())),
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": versions,
        },
    }


def wait_until_discovered(plane: ControlPlane, names: set[str]) -> None:
    """Discovery, from which kubectl learns the kinds, lists a definition only once it is Established."""
    deadline = time.monotonic() + SERVED_SECONDS
    while missing := names - set(plane.kubectl("api-resources", "--output=name").stdout.split()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not served: {', '.join(sorted(missing))}")
        time.sleep(0.2)
