"""The patches of repair plans against KubeVirt's own code: is the changed VM admitted,
and does it have to restart?

``python -m tests.upstream.updates 20000`` compares that many random patches, and the plans of a
cluster for each 50 of them; a second number is the first seed.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.forecasts.repair.broken_clusters import kubevirt
from tests.forecasts.repair.test_random_clusters import random_cluster
from tests.upstream.admission import Comparison, Report
from tests.upstream.renderer import ADMISSION, ask, program
from virt_admit.forecasts.repair.applying import applied, find
from virt_admit.forecasts.repair.controllers import LIVE_FIELDS, TEMPLATE
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import (
    Command,
    Goal,
    ObjectRef,
    RepairStep,
    TakesEffect,
)
from virt_admit.model.kubernetes import json_patch
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, KUBEVIRT, PVC, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms

_BATCH: Final = 100
"""Clusters in one run of the program, which takes seconds to start."""


class Change(NamedTuple):
    """A VM before and after a step, as a case of ``admission/main.go``."""

    step: RepairStep
    given: Mapping[str, Any]


def changes(cluster: Cluster) -> Iterator[Change]:
    """Yield what each step of the plan of a cluster makes of VMs, in order."""
    started: dict[ObjectRef, Object] = {}
    state: dict[ObjectRef, Object] = {}
    steps = repair(cluster, Goal.DRAIN).steps
    for index, step in enumerate(steps):
        for made in step.patched:
            subject = made.change.subject
            if made.change.command is not Command.PATCH or subject.kind is not VM:
                continue
            before = state.get(subject) or find(cluster, *subject)
            assert before is not None
            after = state[subject] = json_patch.apply(before, made.patch)
            if any(
                tuple(each.path[: len(TEMPLATE)]) == TEMPLATE
                for each in made.patch
                if each.op != "test"
            ):
                there = applied(steps[:index], cluster)
                yield Change(step, _case(started.get(subject, before), after, step, there))
            if step.takes_effect is TakesEffect.RESTART:
                started[subject] = after


def _case(started: Object, after: Object, step: RepairStep, cluster: Cluster) -> dict[str, Any]:
    """Return the case of a VM that was started with one spec, and has another one after a step."""
    running = find(cluster, VMI, started.namespace, started.name)
    settings = next(iter(cluster.known(KUBEVIRT)), None)
    claims = [
        *cluster.known(PVC, started.namespace),
        *applied([step], cluster).known(PVC, started.namespace),
    ]
    volumes = [_data_volume(each.copy, started.namespace) for each in step.copies]
    spec = vms.vmi_spec(started).value
    return {
        "kubevirt": settings.data if settings is not None else kubevirt().data,
        "objects": [*({each.name: each.data for each in claims}.values()), *volumes],
        "old": _admissible(started),
        "subject": _admissible(after),
        "running": {
            "apiVersion": VMI.api_version,
            "kind": VMI.kind,
            "metadata": {"name": started.name, "namespace": started.namespace},
            "spec": {"domain": {"devices": {}}} | spec,
            "status": {"phase": "Running", "volumeStatus": list(_volume_status(spec, claims))}
            if running
            else {},
        },
    }


def _data_volume(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": DATA_VOLUME.api_version,
        "kind": DATA_VOLUME.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
        "status": {"phase": "Succeeded"},
    }


def _volume_status(spec: Mapping[str, Any], claims: Iterable[Object]) -> Iterator[dict[str, Any]]:
    modes = {claim.name: claim.at("spec", "accessModes").value for claim in claims}
    for volume in spec.get("volumes") or ():
        source = volume.get("persistentVolumeClaim") or volume.get("dataVolume") or {}
        name = source.get("claimName") or source.get("name")
        if name in modes:
            yield {
                "name": volume["name"],
                "target": "",
                "persistentVolumeClaimInfo": {"claimName": name, "accessModes": modes[name]},
            }


def _admissible(vm: Object) -> dict[str, Any]:
    """Return a VM with what KubeVirt demands, and the clusters of the tests leave out."""
    spec = dict(vm["spec"].map)
    template = dict(spec["template"])
    inner = dict(template["spec"])
    domain = {"memory": {"guest": "1Gi"}} | dict(inner.get("domain") or {})
    domain["devices"] = dict(domain.get("devices") or {})
    inner["domain"] = domain
    template["spec"] = inner
    metadata = {"name": vm.name, "namespace": vm.namespace}
    return {
        "apiVersion": VM.api_version,
        "kind": VM.kind,
        "metadata": metadata,
        "spec": spec | {"template": template},
    }


def compare(change: Change, result: Mapping[str, Any]) -> Iterator[Comparison]:
    """Yield all that a change is compared in."""
    if "update" not in result or "crash" in result:
        yield Comparison("KubeVirt survives the change", True, result.get("crash"))
        return
    update = result["update"]
    yield Comparison(
        "the changed VM is admitted", "", "" if update["vm"]["allowed"] else update["vm"]
    )
    if update["vm"]["allowed"]:
        restarts = change.step.takes_effect is TakesEffect.RESTART
        yield Comparison("the change needs a restart", restarts, update["restart"])
        yield Comparison("the changed volumes are copied", "", update.get("volumes", ""))


def verify(binary: Path, clusters: Iterable[tuple[int, Cluster]]) -> Report:
    """Compare all patches of the plans of these clusters, each with a number for the report."""
    report = Report()
    some = list(clusters)
    for start in range(0, len(some), _BATCH):
        found = [
            (number, each)
            for number, cluster in some[start : start + _BATCH]
            for each in changes(cluster)
        ]
        results = ask(binary, [each.given for _, each in found])
        for (number, change), result in zip(found, results, strict=True):
            report.cases += 1
            report.admitted += "update" in result and result["update"]["vm"]["allowed"]
            report.add(number, compare(change, result))
    return report


# --- what takes effect at once --------------------------------------------------------------------

_TERM: Final = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
_REQUIRED: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}
}
_EDITS: Final[tuple[tuple[str, Any], ...]] = (
    ("nodeSelector", {"zone": "a"}),
    ("affinity", {"nodeAffinity": _REQUIRED}),
    ("tolerations", [{"key": "dedicated", "operator": "Exists"}]),
    ("volumes", [{"name": "root", "persistentVolumeClaim": {"claimName": "other"}}]),
    ("evictionStrategy", "LiveMigrateIfPossible"),
    ("terminationGracePeriodSeconds", 30),
    ("priorityClassName", "high"),
    ("schedulerName", "other"),
    ("networks", [{"name": "default", "pod": {"vmNetworkCIDR": "10.1.0.0/24"}}]),
    ("domain.cpu", {"cores": 1, "model": "Haswell"}),
    ("domain.features", {"acpi": {}, "hyperv": {"relaxed": {}}}),
    ("domain.devices", {"interfaces": [{"name": "default", "bridge": {}}]}),
    ("domain.clock", {"utc": {}}),
)
_MOVED: Final = "volumes"


def random_patch(seed: int) -> tuple[dict[str, Any], bool]:
    """Return the case of a VM with some changed fields,
    and whether our table says that it has to restart.
    """
    chance = random.Random(seed)
    live = chance.random() < 0.7
    first = len(LIVE_FIELDS) + 1 if chance.random() < 0.5 else len(_EDITS)
    edits = chance.sample(_EDITS[:first], chance.randint(1, min(3, first)))
    spec: dict[str, Any] = {
        "domain": {
            "cpu": {"cores": 1},
            "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}],
    }
    changed = copy.deepcopy(spec)
    for path, value in edits:
        place, _, key = path.rpartition(".")
        (changed["domain"] if place else changed)[key] = value
    free = {*(LIVE_FIELDS if live else ()), _MOVED}
    settings = kubevirt({"vmRolloutStrategy": "LiveUpdate" if live else "Stage"})
    before, after = (
        {"runStrategy": "Always", "template": {"spec": each}} for each in (spec, changed)
    )
    if any(path == _MOVED for path, _ in edits):
        after["updateVolumesStrategy"] = "Migration"
    old, new = (_admissible(Object({"metadata": _NAMED, "spec": each})) for each in (before, after))
    running = {"apiVersion": VMI.api_version, "kind": VMI.kind, "metadata": _NAMED, "spec": spec}
    case = {
        "kubevirt": settings.data,
        "objects": [],
        "old": old,
        "subject": new,
        "running": running,
    }
    return case, any(path not in free for path, _ in edits)


_NAMED: Final = {"name": "vm", "namespace": "shop"}


def verify_table(binary: Path, seeds: range) -> Report:
    """Compare which changes of these seeds need a restart."""
    report = Report()
    found = [random_patch(seed) for seed in seeds]
    results = ask(binary, [case for case, _ in found])
    for seed, (_, restarts), result in zip(seeds, found, results, strict=True):
        update = result["update"]
        report.cases += 1
        report.admitted += update["vm"]["allowed"]
        if update["vm"]["allowed"]:
            report.add(
                seed, [Comparison("the change needs a restart", restarts, update["restart"])]
            )
    return report


def main(count: int, first: int = 0) -> int:
    """Compare, print a summary and return the number of differences."""
    binary, wrong = program(ADMISSION), 0
    for what, report in (
        ("random patches of VMs", verify_table(binary, range(first, first + count))),
        (
            "patches of plans",
            verify(
                binary, ((seed, random_cluster(seed)) for seed in range(first, first + count // 50))
            ),
        ),
    ):
        report.print(f"{what}, of which KubeVirt admits")
        wrong += sum(map(len, report.differ.values()))
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
