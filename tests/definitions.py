"""The CustomResourceDefinitions of other projects, which are not part of this repository.

Three sources, in this order. The first one that has a kind counts:

1. ``modules``: Go modules, in the versions of ``upstream/definitions/go.mod`` and
   ``upstream/health/go.mod``. What they define is extracted once and cached, as the programs of
   ``apiserver/binaries.py``.
2. ``shared``: the folder ``shared/crds`` next to the checkout, with one file
   ``<plural>.<group>.yaml`` for each kind.
3. Definitions of our own. Those of a kind with a table of known fields drop unknown fields but
   accept every value; those of other kinds accept everything. Tests that need more are skipped and
   name the kind.

``VIRT_ADMIT_DEFINITIONS=shared`` allows that source alone, ``VIRT_ADMIT_DEFINITIONS=`` neither of
them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.binaries import Build, Unavailable, go_command, run_go
from tests.paths import ROOT
from virt_admit.model import unknown_fields
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.unknown_fields import ANY, FREE

CHOICE: Final = "VIRT_ADMIT_DEFINITIONS"
SHARED: Final = ROOT.parent / "shared" / "crds"
MODULE: Final = ROOT / "tests" / "upstream" / "definitions"
HEALTH: Final = MODULE.with_name("health")

CDI: Final = "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
CDI_FILES: Final = tuple(
    f"cdi.kubevirt.io_{plural}.yaml" for plural in ("cdis", "datavolumes", "storageprofiles")
)
FILES: Final = {
    (MODULE, "github.com/openshift/api"): (
        *(
            f"machine/v1beta1/0000_10_{name}.yaml"
            for name in ("machine.crd", "machinehealthcheck", "machineset.crd")
        ),
        "machineconfiguration/v1/0000_80_machineconfigpool.crd.yaml",
    ),
    (HEALTH, "sigs.k8s.io/cluster-api"): (
        "core/config/crd/bases/cluster.x-k8s.io_machinehealthchecks.yaml",
    ),
}
"""Modules that have definitions as files."""

# As upstream defines them; without the sub-resource a status is written, and judged, with the
# object itself.
WITHOUT_STATUS: Final = frozenset(
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
SHORT_NAMES: Final = {
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
WITH_SCALE: Final = frozenset((kinds.VMIRS, kinds.POOL, kinds.MACHINE_SET))
SCALE: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.labelSelector",
}
FREE_SCHEMA: Final = {"x-kubernetes-preserve-unknown-fields": True}


def of(kind: Kind) -> dict[str, Any]:
    """Return the definition of a kind: a real one, otherwise our own."""
    path = real().get(kind.resource)
    return own(kind) if path is None else load(path)


def older_hyperconverged() -> dict[str, Any]:
    """Return the definition of HyperConverged in release 1.17, the last one with v1beta1 alone."""
    path = SHARED / "variants" / f"{kinds.HCO}.v1beta1-only.yaml"
    if "shared" in _allowed() and path.is_file():
        return load(path)
    return own(kinds.HCO._replace(versions=("v1beta1",)), release=-1)


def needs_real(kind: Kind | None) -> None:
    """Skip a test that needs what only a real definition has, such as the validation of values."""
    if kind is not None and kind.group not in kinds.BUILT_IN_GROUPS and kind.resource not in real():
        pytest.skip(f"no real definition of {kind} at hand (tests/definitions.py)")


def has_field(definition: Mapping[str, Any], *path: str) -> bool:
    """Return whether the storage version of a definition keeps this field."""
    (schema,) = (
        each["schema"]["openAPIV3Schema"]
        for each in definition["spec"]["versions"]
        if each["storage"]
    )
    for name in path:
        if FREE_SCHEMA.items() <= schema.items():
            return True
        if name not in schema.get("properties", {}):
            return False
        schema = schema["properties"][name]
    return True


def load(path: Path) -> dict[str, Any]:
    """Return the definition in a file."""
    text = path.read_text()
    found: dict[str, Any] = (
        json.loads(text) if path.suffix == ".json" else yaml.load(text, yaml.CSafeLoader)
    )
    return found


@functools.cache
def real(*, build: bool = True) -> Mapping[str, Path]:
    """Return the file of each real definition by ``<plural>.<group>``.

    Without ``build`` the Go modules count only if they were extracted before.
    """
    found = (
        {path.stem: path for path in sorted(SHARED.glob("*.yaml"))}
        if "shared" in _allowed()
        else {}
    )
    folder = _extracted(build) if "modules" in _allowed() else None
    return found | {path.stem: path for path in sorted(folder.glob("*.json") if folder else ())}


def _allowed() -> list[str]:
    return os.environ.get(CHOICE, "modules,shared").split(",")


def _extracted(build: bool) -> Path | None:
    """Return the folder with the definitions of the Go modules; None if they cannot be had,
    which is announced.
    """
    inputs = [*sorted(MODULE.iterdir()), HEALTH / "go.mod", Path(__file__)]
    key = hashlib.sha256(b"".join(file.read_bytes() for file in inputs)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "virt-admit"
    folder = cache / f"definitions-{key}"
    if folder.is_dir() or not build:
        return folder if folder.is_dir() else None
    cache.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():  # another process may have extracted them while we waited
            try:
                go = go_command(Build("definitions", ("the definitions of custom resources",), "."))
                _print(
                    "extracting the definitions of custom resources once, some minutes, into "
                    f"{folder}"
                )
                with TemporaryDirectory(dir=cache, prefix=f"{folder.name}.") as scratch:
                    _write(Path(scratch) / "crds", _definitions(go, Path(scratch) / "cdi"))
                    (Path(scratch) / "crds").rename(folder)
            except (Unavailable, RuntimeError) as reason:
                _print(str(reason))
                return None
    return folder


def _definitions(go: str, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield the definitions that the Go modules have. Raises RuntimeError with the output of Go."""
    for line in run_go([go, "run", "-mod=readonly", "."], MODULE).splitlines():
        yield json.loads(line)
    # CDI's API has no definitions. CDI makes them from its types with the same tool.
    run_go(
        [go, "tool", "controller-gen", "crd", f"paths={CDI}", f"output:crd:dir={scratch}"], MODULE
    )
    paths = [scratch / name for name in CDI_FILES]
    for (module, name), files in FILES.items():
        folder = json.loads(run_go([go, "mod", "download", "-json", name], module))["Dir"]
        paths += [Path(folder, file) for file in files]
    yield from map(load, paths)


def _write(folder: Path, found: Iterable[dict[str, Any]]) -> None:
    folder.mkdir()
    for definition in found:
        definition.pop("status", None)
        for version in definition["spec"]["versions"]:
            version["schema"] = _without_texts(version["schema"])
        (folder / f"{definition['metadata']['name']}.json").write_text(json.dumps(definition))


def _without_texts(schema: Any) -> Any:
    """Return a schema without descriptions, which are most of it and change nothing."""
    if isinstance(schema, list):
        return [_without_texts(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_texts(below) for name, below in value.items()}
        if key == "properties"
        else _without_texts(value)
        for key, value in schema.items()
        if key not in ("description", "example", "externalDocs")
    }


def own(kind: Kind, release: int = 0) -> dict[str, Any]:
    """Return a definition made from our own table of kinds and, if the kind has one,
    the table of its known fields.
    """
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
            "schema": {"openAPIV3Schema": _schema(kind, version, release)},
        }
        for version in kind.versions
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "annotations": _approval(kind)},
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


def _approval(kind: Kind) -> dict[str, str]:
    """Return the annotation without which an API server takes no definition of a group of
    Kubernetes (kubernetes/enhancements#1111).
    """
    is_protected = kind.group.endswith((".k8s.io", ".kubernetes.io"))
    return {"api-approved.kubernetes.io": "unapproved, for tests"} if is_protected else {}


def _schema(kind: Kind, version: str, release: int) -> dict[str, Any]:
    path = unknown_fields.FOLDER / f"{kind.resource}.json"
    known = json.loads(path.read_text()) if path.is_file() else {"versions": {}}
    if version not in known["versions"]:
        return {"type": "object"} | FREE_SCHEMA
    types = known["types"]

    def schema(node: int | list[Any]) -> dict[str, Any]:
        if isinstance(node, list):
            return {"type": "array", "items": schema(node[0])}
        fields = dict(types[node])
        if node == FREE:
            return FREE_SCHEMA
        extra = fields.pop(ANY, None)
        if extra is not None and extra != FREE:
            return {"type": "object", "additionalProperties": schema(extra)}
        free = FREE_SCHEMA if extra == FREE else {}
        return {
            "type": "object",
            "properties": {name: schema(below) for name, below in fields.items()},
        } | free

    found = schema(known["versions"][version][release])
    strings = {name: {"type": "string"} for name in ("apiVersion", "kind")}
    found["properties"] |= strings | {
        "metadata": {"type": "object"},
        "status": {"type": "object"} | FREE_SCHEMA,
    }
    return found


@contextlib.contextmanager
def written(wanted: Iterable[Kind]) -> Iterator[Path]:
    """Yield a folder with one file for the definition of each kind."""
    with TemporaryDirectory() as name:
        for kind in wanted:
            (Path(name) / f"{kind.resource}.yaml").write_text(json.dumps(of(kind)))
        yield Path(name)


def _print(line: str) -> None:
    print(line, file=sys.stderr)


# before pytest-xdist, whose workers cannot announce that they wait for Go
if __name__ == "__main__":
    real()
