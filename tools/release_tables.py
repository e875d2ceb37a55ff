"""The tables of releases in ``model/release_tables``, made from upstream's source code;
docs/upstream.md has the steps.

``python -m tools.release_tables KUBEVIRT HYPERCONVERGED`` writes them from two git checkouts that
have all tags.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tools.paths import ROOT
from virt_admit.model.kubernetes import kinds

FOLDER: Final = ROOT / "webhook" / "virt_admit" / "model" / "release_tables"

KUBEVIRT: Final = {
    "1.5": "v1.5.0",
    "1.6": "v1.6.0",
    "1.7": "v1.7.0",
    "1.8": "v1.8.0",
    "1.9": "v1.9.0",
}
"""The releases that ``--target`` accepts, with their tags."""
OLDER: Final = ("v1.0.0", "v1.1.0", "v1.2.0", "v1.3.0", "v1.4.0")
"""Releases of which only the names of feature gates are kept."""
HYPERCONVERGED: Final = {
    "1.15": "v1.15.0",
    "1.16": "v1.16.0",
    "1.17": "v1.17.0",
    "1.18": "v1.18.0",
    "1.19": "release-1.19",
}

Read = Callable[[str], str]
"""Returns the text of a file of one release; empty if the release does not have it."""

GATES: Final = "pkg/virt-config/featuregate"
_ARCHITECTURES: Final = {"AARCH64": "arm64"}
_CONSTANT: Final = re.compile(r'^\s*(\w+)\s*=\s*"([^"]*)"', re.MULTILINE)
_REGISTERED: Final = re.compile(r"RegisterFeatureGate\(FeatureGate\{Name: (\w+), State: (\w+)")


def kubevirt(read: Read) -> dict[str, Any]:
    """Return what the table holds about one release of KubeVirt."""
    settings = read("pkg/virt-config/virt-config.go")
    crds = read("pkg/virt-operator/resource/generate/components/crds.go")
    logic = read(f"{GATES}/feature-gates.go")
    return {
        "beta_is_on": "IsEnabled" in logic,
        "gates": gates(read),
        "emulated_machines": {
            _ARCHITECTURES.get(arch, arch.lower()): value.split(",")
            for arch, value in re.findall(
                r'Default(\w+?)EmulatedMachines\s*=\s*"([^"]*)"', settings
            )
        },
        "defaults": defaults(settings),
        "instancetype_versions": sorted(set(_served(crds, "instancetypev"))),
    }


def fields(read: Read) -> dict[str, set[str]]:
    """Return the fields of each kind that we know, as ``spec.volumes[].name``;
    the status is left out.
    """
    found = {}
    for name, text in _SCHEMA.findall(
        read("pkg/virt-operator/resource/generate/components/validations_generated.go")
    ):
        schema = yaml.load(text, yaml.CSafeLoader)["openAPIV3Schema"]
        kind = _KINDS.get(name)
        if kind is not None:
            found[kind] = {path for path in _fields(schema, "") if not path.startswith("status")}
    return found


_SCHEMA: Final = re.compile(r'"(\w+)":\s*`(openAPIV3Schema:.*?)`', re.DOTALL)
_KINDS: Final = {
    kind.kind.lower(): kind.kind for kind in kinds.ALL if kind.group.endswith("kubevirt.io")
}


def _fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in schema.get("properties", {}).items():
        own = f"{path}.{name}" if path else name
        yield own
        yield from _fields(value, own)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _fields(schema[key], f"{path}[]")


def removed_fields(reads: Mapping[str, Read]) -> dict[str, dict[str, list[str]]]:
    """Return the fields that each release removed, by release and kind;
    of a removed map only the map itself.
    """
    every = {release: fields(read) for release, read in reads.items()}
    found: dict[str, dict[str, list[str]]] = {}
    for (_, before), (release, after) in itertools.pairwise(every.items()):
        for kind in sorted(before):
            gone = before[kind] - after.get(kind, set())
            highest = sorted(
                path
                for path in gone
                if not any(path.startswith((f"{up}.", f"{up}[")) for up in gone)
            )
            if highest:
                found.setdefault(release, {})[kind] = highest
    return found


def gates(read: Read) -> dict[str, str]:
    """Return the state of each feature gate of a release.

    Up to 1.8 a gate works by its name alone, so that a constant which is not registered counts as
    Alpha.
    """
    names = ("active", "inactive", "macvtap", "passt", "virtiofs")
    files = {name: read(f"{GATES}/{name}.go") for name in names}
    constants = dict(_CONSTANT.findall("\n".join(files.values())))
    found = {
        constants[name]: state
        for text in files.values()
        for name, state in _REGISTERED.findall(text)
    }
    if "func IsEnabled" not in read(f"{GATES}/feature-gates.go"):
        for _, value in _CONSTANT.findall(files["active"]):
            found.setdefault(value, "Alpha")
    return dict(sorted(found.items()))


def older_gates(read: Read) -> list[str]:
    """Return the names of the feature gates of a release that has no package for them."""
    files = (
        "feature-gates.go",
        "deprecation/feature-gates.go",
        "featuregate/active.go",
        "featuregate/inactive.go",
    )
    found = _CONSTANT.findall("\n".join(read(f"pkg/virt-config/{file}") for file in files))
    return [
        value for _, value in found if re.fullmatch(r"[A-Z]\w+", value) and value not in _STATES
    ]


_STATES: Final = ("Alpha", "Beta", "GA", "Deprecated", "Discontinued")


def defaults(settings: str) -> dict[str, str | int]:
    """Return the defaults of settings that change what happens to running VMs."""
    rollout = re.search(r"DefaultVMRolloutStrategy\s*=\s*v1\.VMRolloutStrategy(\w+)", settings)
    timeout = re.search(r"MigrationCompletionTimeoutPerGiB\s+int64\s*=\s*(\d+)", settings)
    found = {"spec.configuration.vmRolloutStrategy": rollout and rollout[1]}
    found["spec.configuration.migrations.completionTimeoutPerGiB"] = timeout and int(timeout[1])
    return {path: value for path, value in found.items() if value is not None}


def _served(crds: str, package: str) -> Iterator[str]:
    pattern = rf"Name:\s*{package}(\w*)\.SchemeGroupVersion\.Version,\s*Served:\s*(\w+)"
    yield from (
        f"v{version}"
        for version, served in re.findall(pattern, crds)
        if version and served == "true"
    )


def hyperconverged(read: Read) -> dict[str, Any]:
    """Return what the table holds about one release of HyperConverged."""
    types = read("api/v1beta1/hyperconverged_types.go")
    block = re.search(r"type HyperConvergedFeatureGates struct \{(.*?)\n\}", types, re.DOTALL)
    fields = re.findall(r'json:"(\w+)', block[1]) if block else []
    details = json.loads(read("pkg/featuregatedetails/feature-gates.json") or "[]")
    limits = re.search(r"\+kubebuilder:default=(\{\"completionTimeoutPerGiB\".*?\})", types)
    stored = json.loads(limits[1]) if limits else {}
    kept = (
        "completionTimeoutPerGiB",
        "parallelOutboundMigrationsPerNode",
        "parallelMigrationsPerCluster",
    )
    return {
        "kubevirt": (re.search(r'KUBEVIRT_VERSION="v(\d+\.\d+)', read("hack/config")) or ("", ""))[
            1
        ],
        "phases": {each["name"]: each["phase"] for each in details},
        "instead": {
            each["name"]: used[1]
            for each in details
            if (used := _INSTEAD.search(each["description"]))
        },
        "fields": sorted(fields),
        "ignored": sorted(_ignored(block[1] if block else "")),
        "migration_limits": {key: stored[key] for key in kept if key in stored},
    }


_INSTEAD: Final = re.compile(r"[Uu]se (spec\.[\w.]+\w)")


def _ignored(block: str) -> Iterator[str]:
    """Yield the v1beta1 feature gates that this release documents as ignored."""
    for comment, name in re.findall(
        r"((?:^\s*//[^\n]*\n)+)[^\n]*json:\"(\w+)", block, re.MULTILINE
    ):
        if "ignored" in comment:
            yield name


def _git(checkout: Path, tag: str) -> Read:
    def read(path: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(checkout), "show", f"{tag}:{path}"],
            check=False,
            capture_output=True,
            text=True,
        )
        return done.stdout if done.returncode == 0 else ""

    return read


def main(kubevirt_checkout: Path, hyperconverged_checkout: Path) -> None:
    """Write the tables."""
    reads = {release: _git(kubevirt_checkout, tag) for release, tag in KUBEVIRT.items()}
    releases = {release: kubevirt(read) for release, read in reads.items()}
    other = {name for tag in OLDER for name in older_gates(_git(kubevirt_checkout, tag))}
    other |= set(gates(_git(kubevirt_checkout, "main")))
    known = {name for release in releases.values() for name in release["gates"]}
    gone = removed_fields(reads)
    _write(
        "kubevirt",
        {
            "releases": releases,
            "gates_of_other_releases": sorted(other - known),
            "removed_fields": gone,
        },
    )
    products = {
        release: hyperconverged(_git(hyperconverged_checkout, tag))
        for release, tag in HYPERCONVERGED.items()
    }
    _write("hyperconverged", {"releases": products})


def _write(name: str, table: dict[str, Any]) -> None:
    text = json.dumps(table, indent=1, sort_keys=True)
    text = re.sub(
        r"\[\s+([^\[\]{}]*?)\s+\]",
        lambda found: "[" + re.sub(r"\s*\n\s*", " ", found[1]) + "]",
        text,
    )
    (FOLDER / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
