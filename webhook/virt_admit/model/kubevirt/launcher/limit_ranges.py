"""LimitRanges: the defaults that they write into a new launcher pod, and what they refuse.

A launcher pod that runs was accepted when it was made. A LimitRange that is newer can refuse the
second pod which a migration needs. Sources: k8s.io/kubernetes
plugin/pkg/admission/limitranger/admission.go#PodMutateLimitFunc, #PodValidateLimitFunc;
pkg/apis/core/v1/defaults.go#SetDefaults_LimitRangeItem.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LIMIT_RANGE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.scheduler.pod_size import Container, PodSize
from virt_admit.model.scheduler.resources import CPU, Resources, amount, amounts, show

READS: Final[Reads] = {LIMIT_RANGE: ("spec",)}


def of_namespace(cluster: Cluster, namespace: str) -> list[Object]:
    """Return the LimitRanges of a namespace as far as they are known, by name:
    the first to set a default wins.
    """
    return sorted(cluster.known(LIMIT_RANGE, namespace), key=lambda found: found.name)


def default_limit(found: Object, resource: str) -> str:
    """Return the limit that a container gets which sets none; empty: it gets none."""
    items = _items([found], "Container")
    given = (item[key][resource] for item in items for key in ("default", "max"))
    return next((str(each.value) for each in given if each.present), "")


def defaulted(size: PodSize, ranges: Iterable[Object]) -> PodSize:
    """Return a new pod with the requests and limits that LimitRanges add where a container has
    none.
    """
    for found in () if size.summed else ranges:
        requests: dict[str, int] = {}
        limits: dict[str, int] = {}
        for item in _items([found], "Container"):
            limited = amounts(item["max"].map) | amounts(item["default"].map)
            limits |= limited
            requests |= amounts(item["min"].map) | limited | amounts(item["defaultRequest"].map)
        size = size.changed(functools.partial(_fill, requests=requests, limits=limits))
    return size


def _fill(container: Container, requests: Resources, limits: Resources) -> Container:
    return replace(
        container,
        requests={**requests, **container.requests},
        limits={**limits, **container.limits},
    )


def refusal(size: PodSize, ranges: Iterable[Object]) -> str:
    """Return why the API server refuses a new pod, after ``defaulted``; empty: it accepts the pod.

    Of a pod that is known as a whole only what concerns the whole pod is judged.
    """
    ranges = list(ranges)
    containers = () if size.summed else size.every
    refusals = (
        _contradiction(containers, ranges),
        *(_violation(size, containers, found) for found in ranges),
    )
    return next(filter(None, refusals), "")


def _contradiction(containers: Iterable[Container], ranges: Iterable[Object]) -> str:
    """Return which container got a default limit below its own request: such a pod is not valid."""
    for each in containers:
        for resource, limit in each.limits.items():
            asked = each.requests.get(resource, 0)
            if limit < asked:
                names = ", ".join(found.name for found in ranges)
                values = (
                    f"the default limit {show(resource, limit)} is below the request "
                    f"{show(resource, asked)}"
                )
                return f"LimitRange {names}: {_of(each)}: {resource}: {values}"
    return ""


def _violation(size: PodSize, containers: Iterable[Container], found: Object) -> str:
    judged = [("Container", _of(each), each.requests, each.limits) for each in containers]
    for kind, what, requests, limits in (*judged, ("Pod", "the pod", size.requests, size.limits)):
        for item in _items([found], kind):
            for fault in _faults(item, requests, limits):
                return f"LimitRange {found.name}: {what}: {fault}"
    return ""


def _of(container: Container) -> str:
    return f"container {container.name}" if container.name else "a container"


def _items(ranges: Iterable[Object], kind: str) -> Iterator[Field]:
    for found in ranges:
        for item in found.at("spec", "limits").items():
            if item["type"].text == kind:
                yield item


def _faults(item: Field, requests: Resources, limits: Resources) -> Iterator[str]:
    for resource, least in amounts(item["min"].map).items():
        if resource not in requests:
            yield f"{resource}: no request, the minimum is {show(resource, least)}"
        for word, given in (("request", requests), ("limit", limits)):
            if resource in given and given[resource] < least:
                yield (
                    f"{resource}: {word} {show(resource, given[resource])}, the minimum is "
                    f"{show(resource, least)}"
                )
    for resource, most in amounts(item["max"].map).items():
        if resource not in limits:
            yield f"{resource}: no limit, the maximum is {show(resource, most)}"
        for word, given in (("limit", limits), ("request", requests)):
            if resource in given and given[resource] > most:
                yield (
                    f"{resource}: {word} {show(resource, given[resource])}, the maximum is "
                    f"{show(resource, most)}"
                )
    for resource, ratio in item["maxLimitRequestRatio"].map.items():
        thousandths = amount(CPU, ratio)  # a ratio is a quantity: read it as exactly as CPU
        if not requests.get(resource) or not limits.get(resource):
            yield f"{resource}: a request and a limit are necessary, for a ratio of at most {ratio}"
        elif limits[resource] * 1000 > thousandths * requests[resource]:
            yield f"{resource}: the limit is more than {ratio} times the request"
