"""What each container of a pod requests and is limited to, and how the API server adds them up.

Source: k8s.io/component-helpers resource/helpers.go#PodRequests, #PodLimits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from virt_admit.model.objects import Field
from virt_admit.model.scheduler.resources import Resources, add, amounts, highest, whole


@dataclass(frozen=True, slots=True)
class Container:
    """What a container requests and is limited to. A limit without a request is the request."""

    requests: Resources
    limits: Resources
    name: str = ""

    @classmethod
    def of(
        cls, requests: Mapping[str, int | Fraction], limits: Mapping[str, int | Fraction], name: str = ""
    ) -> Container:
        """Round up as kube-scheduler does."""
        limited = {key: whole(key, value) for key, value in limits.items()}
        return cls({**limited, **{key: whole(key, value) for key, value in requests.items()}}, limited, name)


class PodSize(NamedTuple):
    """The containers of a pod. Sidecars are restartable init containers: they run next to the others."""

    containers: tuple[Container, ...]
    sidecars: tuple[Container, ...] = ()
    init: tuple[Container, ...] = ()
    overhead: Resources = MappingProxyType({})
    summed: bool = False
    """The pod is known as a whole, not container by container: so the webhook keeps it."""

    @property
    def every(self) -> tuple[Container, ...]:
        return self.containers + self.sidecars + self.init

    @property
    def requests(self) -> Resources:
        total = self._total(lambda container: container.requests)
        add(total, self.overhead)
        return total

    @property
    def limits(self) -> Resources:
        total = self._total(lambda container: container.limits)
        add(total, {name: value for name, value in self.overhead.items() if name in total})
        return total

    def changed(self, change: Callable[[Container], Container]) -> PodSize:
        """Return the same pod with each container changed."""
        return self._replace(
            containers=tuple(map(change, self.containers)),
            sidecars=tuple(map(change, self.sidecars)),
            init=tuple(map(change, self.init)),
        )

    def _total(self, of: Callable[[Container], Resources]) -> dict[str, int]:
        """Add up containers and sidecars; an ordinary init container runs next to the sidecars alone."""
        beside = _sum(map(of, self.sidecars))
        total = _sum([beside, *map(of, self.containers)])
        for each in map(of, self.init):
            highest(total, _sum([beside, each]))
        return total


def _sum(amounts: Iterable[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in amounts:
        add(total, each)
    return total


def read(spec: Field) -> PodSize:
    """Return the size of a pod with this spec, without resources that are set for the pod as a whole."""
    init = [(item["restartPolicy"].text == "Always", _container(item)) for item in spec["initContainers"].items()]
    return PodSize(
        tuple(_container(item) for item in spec["containers"].items()),
        tuple(each for sidecar, each in init if sidecar),
        tuple(each for sidecar, each in init if not sidecar),
        amounts(spec["overhead"].map),
        summed=any(not item["name"].present for item in spec["containers"].items()),
    )


def _container(item: Field) -> Container:
    resources = item["resources"]
    limits = amounts(resources["limits"].map)
    return Container({**limits, **amounts(resources["requests"].map)}, limits, item["name"].text or "")
