"""Amounts of resources: what pods request and nodes offer, as kube-scheduler adds them up.

Source: k8s.io/component-helpers resource/helpers.go#PodRequests;
k8s.io/kubernetes pkg/scheduler/framework/plugins/noderesources/fit.go.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.kubernetes.quantities import parse_quantity

Resources = Mapping[str, int]
"""Amounts by resource name, as in ``status.allocatable``: ``cpu`` in millicores, all others in
whole units (bytes, devices).
"""

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"

_LARGEST: Final = 2**63 - 1
"""Quantities beyond are read as this one (k8s.io/apimachinery pkg/api/resource)."""
_POD_LEVEL: Final = (CPU, MEMORY)
_BINARY: Final = ((2**50, "Pi"), (2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))


def amount(resource: str, quantity: object) -> int:
    """Return a quantity as a whole number, rounded up: millicores of ``cpu``, units of all others;
    0 if invalid.
    """
    return _amount(resource == CPU, quantity) if isinstance(quantity, (str, int)) else 0


# few different quantities; typed, because True equals 1
@functools.lru_cache(maxsize=8192, typed=True)
def _amount(is_cpu: bool, quantity: str | int) -> int:
    try:
        exact = parse_quantity(quantity, integers=True)
    except ValueError:
        return 0
    return whole(CPU if is_cpu else "", exact)


def whole(resource: str, exact: Fraction | int) -> int:
    """Return an exact amount (cores of ``cpu``) as a whole number, rounded up: millicores,
    units of all others.
    """
    return max(0, min(_LARGEST, math.ceil(exact * 1000 if resource == CPU else exact)))


def amounts(quantities: Mapping[str, Any]) -> dict[str, int]:
    """Return a map of quantities, such as ``requests`` or ``allocatable``, as whole numbers."""
    return {name: amount(name, value) for name, value in quantities.items()}


def are_quantities(quantities: Mapping[str, Any]) -> bool:
    """Return whether each value is a quantity.

    The API server stores nothing else; a file may hold anything.
    """
    return all(_is_quantity(value) for value in quantities.values())


def _is_quantity(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and _parses(value)


@functools.lru_cache(maxsize=8192)
def _parses(value: str | int) -> bool:
    try:
        parse_quantity(value, integers=True)
    except ValueError:
        return False
    return True


def is_sized(spec: Field) -> bool:
    """Return whether all requests and limits of a pod with this spec are quantities,
    so that its size is known.
    """
    containers = (*spec["containers"].items(), *spec["initContainers"].items())
    parts = [
        part
        for item in containers
        for part in (item.at("resources", "limits"), item.at("resources", "requests"))
    ]
    return all(
        are_quantities(part.map)
        for part in (*parts, spec.at("resources", "requests"), spec["overhead"])
    )


def show(resource: str, value: int) -> str:
    """Return an amount as a quantity for people: ``1500m``, ``12Gi``, ``2``.

    Rounded up to one decimal.
    """
    if resource == CPU:
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    if resource in (MEMORY, "storage") or resource.startswith(("hugepages-", "ephemeral-storage")):
        for size, suffix in _BINARY:
            if value >= size:
                tenths = -(-value * 10 // size)
                if tenths % 10 == 0:
                    return f"{tenths // 10}{suffix}"
                return f"{tenths // 10}.{tenths % 10}{suffix}"
    return str(value)


def add(total: dict[str, int], more: Resources) -> None:
    """Add amounts to ``total`` in place."""
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def highest(total: dict[str, int], other: Resources) -> None:
    """Raise ``total`` in place to at least ``other``, resource by resource."""
    for name, value in other.items():
        if value > total.get(name, 0):
            total[name] = value


def container_requests(container: Field, status: Field | None = None) -> dict[str, int]:
    """Return the requests of one container; a limit without a request is the request,
    as the API server writes it.

    ``status``: the container's status.
    """
    resources = container["resources"]
    requests = {**amounts(resources["limits"].map), **amounts(resources["requests"].map)}
    return _resized(requests, status)


def _resized(requests: dict[str, int], status: Field | None) -> dict[str, int]:
    """Return requests of a container or a pod;
    while a resize is under way the largest of all sides counts.

    Without ``resources`` the status does not count (component-helpers
    resource/helpers.go#determineEffectiveRequests).
    """
    if status is not None and status["resources"].is_map:
        for actual in (status.at("resources", "requests"), status["allocatedResources"]):
            highest(requests, amounts(actual.map))
    return requests


def is_sidecar(init_container: Field) -> bool:
    """Return whether an init container is restartable: it runs next to the containers."""
    return init_container["restartPolicy"].text == "Always"


def total_of(
    containers: Iterable[Resources], init: Iterable[tuple[Resources, bool]]
) -> dict[str, int]:
    """Add up the containers of a pod.

    ``init``: the init containers in the order in which they start, and whether each is a sidecar.
    Sidecars and containers add up; an ordinary init container counts where it alone, next to the
    sidecars before it, needs more.
    """
    total: dict[str, int] = {}
    peak: dict[str, int] = {}
    for each, beside_others in init:
        needed = dict(total)
        add(needed, each)
        highest(peak, needed)
        if beside_others:
            total = needed
    for each in containers:
        add(total, each)
    highest(total, peak)
    return total


def pod_requests(spec: Field, status: Field | None = None) -> dict[str, int]:
    """Return what a pod with this spec requests of a node.

    Pod-level requests replace the sum of the containers; the overhead is added.
    """
    running = _by_name(status, "containerStatuses")
    started = _by_name(status, "initContainerStatuses")
    total = total_of(
        (
            container_requests(item, running.get(item["name"].text))
            for item in spec["containers"].items()
        ),
        (
            (container_requests(item, started.get(item["name"].text) if sidecar else None), sidecar)
            for item in spec["initContainers"].items()
            for sidecar in (is_sidecar(item),)
        ),
    )
    of_pod = amounts(spec.at("resources", "requests").map)
    wanted = [name for name in of_pod if name in _POD_LEVEL or name.startswith("hugepages-")]
    of_pod = _resized(of_pod, status)
    total |= {name: of_pod[name] for name in wanted}
    add(total, amounts(spec["overhead"].map))
    return total


def _by_name(status: Field | None, key: str) -> Mapping[str | None, Field]:
    return {} if status is None else {item["name"].text: item for item in status[key].items()}


def missing(requests: Resources, free: Resources) -> Iterable[tuple[str, int]]:
    """Yield each resource of which less is free than requested, and how much is missing."""
    for name, value in requests.items():
        if value > 0:
            lack = value - free.get(name, 0)
            if lack > 0:
                yield name, lack
