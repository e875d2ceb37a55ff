"""Our launcher pods against KubeVirt's own: requests, limits,
labels and everything that decides where they may run.

``python -m tests.upstream.launcher_pods 2000`` compares that many random VMIs; a second number is
the first seed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.upstream.launcher_cases import STATE, case
from tests.upstream.renderer import render, renderer
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.selectors import DOES_NOT_EXIST, Requirement
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_pod, launcher_resources
from virt_admit.model.scheduler import pods
from virt_admit.model.scheduler.node_selectors import NodeSelector, Term
from virt_admit.model.scheduler.pods import Pod

_TYPE = {
    "instancetype": "instancetype.kubevirt.io/v1beta1",
    "preference": "instancetype.kubevirt.io/v1beta1",
}
_KINDS = {
    "instancetype": "VirtualMachineClusterInstancetype",
    "preference": "VirtualMachineClusterPreference",
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PLACEMENT = (
    "node_selector",
    "node_affinity",
    "tolerations",
    "affinity",
    "anti_affinity",
    "spread",
    "claims",
)

Difference = tuple[str, Any, Any]
"""What differs, ours, KubeVirt's."""


def differences(given: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield where our launcher pods differ from those that KubeVirt renders for a case."""
    running = result["vmi"] | {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    running["status"] = running.get("status", {}) | {"nodeName": "here", "phase": "Running"}
    cluster = _cluster(given, running, result)
    yield from _sizes("as written", as_written(given), cluster, result["launch"])
    yield from _sizes("running", Object(running), cluster, result["launch"])
    vmi = Object(running)
    amounts = launcher_resources.pod(expand(vmi, cluster), cluster).requests
    fresh = launcher_pod.fresh_pod(expand(vmi, cluster), cluster, amounts)
    yield from _placements("launch", fresh, _theirs(result["launch"]))
    target = candidates.pod_to_place(vmi, cluster, moves=True)
    yield from _placements("migration", target, _theirs(result["migration"]))


def _cluster(given: Mapping[str, Any], running: Any, result: Mapping[str, Any]) -> Snapshot:
    """Return the cluster of a case.

    The pod of the VMI is there, but does not say what it requests.
    """
    spec = {
        "nodeName": "here",
        "nodeSelector": result["launch"]["spec"]["nodeSelector"] | given["migrated"],
    }
    owner = {"kind": "VirtualMachineInstance", "name": running["metadata"]["name"]}
    source = {
        "name": "source",
        "namespace": "shop",
        "labels": result["launch"]["labels"],
        "ownerReferences": [owner],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": source,
        "spec": spec,
        "status": {"phase": "Running"},
    }
    return Snapshot(map(Object, [*surroundings(given), running, pod]), complete=["*"])


def surroundings(given: Mapping[str, Any]) -> list[Any]:
    """Return the cluster of a case without the VMI."""
    return [
        given["kubevirt"],
        given["node"],
        {"apiVersion": "v1", "kind": "Namespace", **given["namespace"]},
        *({"apiVersion": "v1", "kind": "ResourceQuota", **each} for each in given["quotas"]),
        *(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **each}
            for each in given["claims"]
        ),
        *(
            {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", **e}
            for e in given["networks"]
        ),
        *_types(given),
    ]


def _types(given: Mapping[str, Any]) -> Iterator[Any]:
    for key, spec in (given["type"] or {}).items():
        if spec:
            yield {
                "apiVersion": _TYPE[key],
                "kind": _KINDS[key],
                "metadata": {"name": "given"},
                "spec": spec,
            }


def as_written(given: Mapping[str, Any]) -> Object:
    """Return the VMI as its user wrote it, or the VM that starts it."""
    vmi = given["vmi"]
    if not given["type"]:
        return Object({**vmi, "status": {}})
    named = {key: {"name": "given"} for key, spec in given["type"].items() if spec}
    template = {"metadata": vmi["metadata"], "spec": vmi["spec"]}
    return Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": vmi["metadata"],
            "spec": {"template": template, **named},
        }
    )


def _sizes(
    what: str, obj: Object, cluster: Snapshot, theirs: Mapping[str, Any]
) -> Iterator[Difference]:
    computed = launcher_resources.pod(expand(obj, cluster), cluster)
    for side, amounts in (("requests", computed.requests), ("limits", computed.limits)):
        ours = {name: value for name, value in amounts.items() if value}
        expected = {name: value for name, value in theirs[side].items() if value}
        if ours != expected:
            names = sorted(
                name for name in {*ours, *expected} if ours.get(name) != expected.get(name)
            )
            yield (
                f"{side}, {what}",
                {n: ours.get(n) for n in names},
                {n: expected.get(n) for n in names},
            )


def _theirs(rendered: Mapping[str, Any]) -> Pod:
    metadata = {"name": "pod", "namespace": "shop", "labels": rendered["labels"]}
    return pods.read(Object({"metadata": metadata, "spec": rendered["spec"]}))


def _placements(what: str, ours: Pod, theirs: Pod) -> Iterator[Difference]:
    for name in _PLACEMENT:
        left, right = _comparable(ours, name), _comparable(theirs, name)
        if left != right:
            yield f"{name}, {what}", left, right
    labels = {
        key: value for key, value in theirs.labels.items() if key != "kubevirt.io/migrationJobUID"
    }
    if dict(ours.labels) != labels:
        yield f"labels, {what}", dict(ours.labels), labels


def _comparable(pod: Pod, name: str) -> Any:
    value = getattr(pod, name)
    if name == "node_selector":
        return dict(value)
    if name == "node_affinity":
        return _terms(pod)
    # the term by which a target keeps off its source, whose node is left out anyway
    if name == "anti_affinity":
        return [term for term in value if launcher_pod.CREATED_BY not in str(term.selector)]
    if name == "claims":  # without those that KubeVirt makes for a persistent TPM or firmware
        return sorted(claim for claim in value if not claim.startswith(STATE))
    return value or None


def _terms(pod: Pod) -> Any:
    """Return the alternatives of the node affinity with our forbidden labels in each,
    as KubeVirt writes them.
    """
    forbidden = {Requirement(key, DOES_NOT_EXIST) for key in pod.forbidden_labels}
    affinity = pod.node_affinity
    if affinity is None:
        affinity = NodeSelector((Term(frozenset(), frozenset()),)) if forbidden else NodeSelector()
    return sorted(
        str((sorted(map(str, term.labels | forbidden)), sorted(map(str, term.fields))))
        for term in affinity.terms
    )


def compare(program: Path, seeds: range) -> Iterator[tuple[int, str | list[Difference]]]:
    """Yield the error or the differences of each seed;
    KubeVirt refuses some cases with an error.
    """
    cases = [case(seed) for seed in seeds]
    for seed, given, result in zip(seeds, cases, render(program, cases), strict=True):
        yield seed, result["error"] if "error" in result else list(differences(given, result))


def main(count: int, first: int = 0) -> int:
    """Compare and print a summary; return the number of cases that differ."""
    program, refused, wrong = renderer(), Counter[str](), Counter[str]()
    compared = failed = 0
    for start in range(first, first + count, 200):
        for seed, found in compare(program, range(start, min(start + 200, first + count))):
            if isinstance(found, str):
                refused[found] += 1
                continue
            compared += 1
            failed += bool(found)
            for what, ours, theirs in found:
                wrong[what] += 1
                if wrong[what] <= 2:
                    print(f"seed {seed}: {what}:\n  ours   {ours}\n  theirs {theirs}")
    print(
        f"{compared - failed} of {compared} agree; KubeVirt refused {sum(refused.values())}: "
        f"{dict(refused)}"
    )
    print(*(f"{number} x {what}" for what, number in wrong.most_common()), sep="\n")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
