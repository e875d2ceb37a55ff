"""The claims of copied disks against CDI's own code: class, modes and size,
and the disk that fits into the claim.

``python -m tests.upstream.copies 20000`` compares that many random disks; a second number is the
first seed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import claim, cluster, disk, storage_class, vm
from tests.upstream.admission import Comparison, Report
from tests.upstream.renderer import COPIES, program, render
from virt_admit.forecasts.repair import disk_sizes, storage_classes
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import DiskCopy, Goal
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, PVC, STORAGE_CLASS, STORAGE_PROFILE
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubevirt.instances.storage import DEFAULT_FOR_ALL, DEFAULT_FOR_VMS, OVERHEAD

_NAMES: Final = ("ceph", "nfs", "zfs")
_SIZES: Final = (
    "1",
    "1Mi",
    "1048577",
    "1500Ki",
    "1G",
    "10Gi",
    "10G",
    "10737418241",
    "1536Mi",
    "100Gi",
    "2Ti",
    "1.5Gi",
)
_SHARES: Final = ("0", "0.06", "0.055", "0.1", "0.25", "6%", "1")
_BATCH: Final = 2000
"""Cases in one run of the program, which takes a second to start."""


class Copied(NamedTuple):
    """A VM with one disk that is copied, and the copy of the plan."""

    cluster: Cluster
    config: Mapping[str, Any]
    """CDI's, as its configuration controller writes it."""
    copy: DiskCopy
    volume: Mapping[str, Any]
    """The DataVolume of the plan."""


def random_cluster(seed: int) -> tuple[Cluster, Mapping[str, Any]]:
    """Return a cluster with a VM whose disk one node alone can use, and CDI's configuration."""
    chance = random.Random(seed)
    mode = chance.choice(("Block", "Filesystem"))
    objects = [obj for name in _NAMES for obj in _class(name, chance)]
    old = claim("root", size=chance.choice(_SIZES), volume_mode=mode)
    if chance.random() < 0.5:
        old[0].data["spec"]["resources"]["requests"]["storage"] = chance.choice(_SIZES)
    spec: dict[str, Any] = {}
    if chance.random() < 0.7:
        spec["global"] = chance.choice(_SHARES)
    if chance.random() < 0.5:
        spec["storageClass"] = {chance.choice(_NAMES): chance.choice(_SHARES[:-2])}
    cdi = manifest(
        "cdi.kubevirt.io/v1beta1",
        "CDI",
        "cdi",
        spec={"config": {"filesystemOverhead": spec}},
        status={"observedVersion": "v1.65.0"},
    )
    usual = spec.get("global", OVERHEAD)
    # config-controller.go#validOverhead
    usual = OVERHEAD if usual.endswith("%") else usual
    shares = dict.fromkeys(_NAMES, usual) | spec.get("storageClass", {})
    found = cluster(vm(spec=disk(), reason="DisksNotLiveMigratable"), old, objects, cdi)
    return found, {"global": usual, "storageClass": shares}


def _class(name: str, chance: random.Random) -> Iterator[Any]:
    definition, profile = storage_class(name, volume_mode=chance.choice(("Block", "Filesystem")))
    definition.data["metadata"]["creationTimestamp"] = f"2027-01-0{chance.randint(1, 3)}T00:00:00Z"
    marks = [mark for mark in (DEFAULT_FOR_VMS, DEFAULT_FOR_ALL) if chance.random() < 0.3]
    definition.data["metadata"]["annotations"] = dict.fromkeys(marks, "true")
    if chance.random() < 0.5:
        least = {disk_sizes.MINIMUM: chance.choice(("1Gi", "4Gi", "20G", "much"))}
        profile.data["metadata"]["annotations"] = least
    yield definition
    yield profile


def copied(seed: int) -> Copied | None:
    """Return what the plan of a random cluster makes of its disk; None:
    it has no class to copy it to.
    """
    found, config = random_cluster(seed)
    for step in repair(found, Goal.DRAIN).steps:
        for change in step.changes:
            if change.subject.kind is DATA_VOLUME and change.manifest is not None:
                return Copied(found, config, step.copies[0], change.manifest)
    return None


def case(given: Copied, volume: Mapping[str, Any]) -> dict[str, Any]:
    """Return the case of a DataVolume for ``copies/main.go``."""
    return {
        "config": {"metadata": {"name": "config"}, "status": {"filesystemOverhead": given.config}},
        "classes": [each.data for each in given.cluster.known(STORAGE_CLASS)],
        "profiles": [each.data for each in given.cluster.known(STORAGE_PROFILE)],
        "volume": volume,
    }


def compare(
    given: Copied, named: Mapping[str, Any], unnamed: Mapping[str, Any]
) -> Iterator[Comparison]:
    """Yield all that a disk is compared in.

    ``unnamed`` is CDI's answer to a DataVolume that names no class.
    """
    yield Comparison("CDI accepts the DataVolume", "", named.get("error", ""))
    if "claim" not in named:
        return
    theirs = named["claim"]
    yield Comparison("class", given.copy.storage_class, theirs["storageClassName"])
    yield Comparison(
        "modes",
        (given.copy.volume_mode, ["ReadWriteMany"]),
        (theirs["volumeMode"], theirs["accessModes"]),
    )
    claimed = parse_quantity(theirs["resources"]["requests"]["storage"], integers=True)
    yield Comparison("size of the claim", disk_sizes.of_claim(given.copy, given.cluster), claimed)
    source = given.cluster.get(PVC, "shop", "root")
    assert source is not None
    before = parse_quantity(source.at("status", "capacity", "storage").value, integers=True)
    yield Comparison("the whole disk fits", True, named["usable"] >= before)
    default = unnamed.get("claim", {}).get("storageClassName")
    ours = storage_classes.choose("", "Filesystem", given.cluster)
    if default is not None and isinstance(ours, storage_classes.SharedClass):
        yield Comparison("class by default", ours.name, default)


def verify(binary: Path, seeds: range) -> Report:
    """Compare the disks of these seeds."""
    report = Report()
    for start in range(seeds.start, seeds.stop, _BATCH):
        every = [(seed, copied(seed)) for seed in range(start, min(start + _BATCH, seeds.stop))]
        found = [(seed, given) for seed, given in every if given is not None]
        report.cases += len(every)
        results = iter(
            render(
                binary,
                [each for _, given in found for each in (case(given, given.volume), _free(given))],
            )
        )
        for seed, given in found:
            named, unnamed = next(results), next(results)
            report.admitted += "claim" in named
            report.add(seed, compare(given, named, unnamed))
    return report


def _free(given: Copied) -> dict[str, Any]:
    """Return a case in which CDI chooses the class."""
    storage = {"resources": {"requests": {"storage": "10Gi"}}}
    return case(given, {**given.volume, "spec": {"source": {"blank": {}}, "storage": storage}})


def main(count: int, first: int = 0) -> int:
    """Compare, print a summary and return the number of differences."""
    report = verify(program(COPIES), range(first, first + count))
    report.print("random disks, of which are copied")
    return sum(map(len, report.differ.values()))


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
