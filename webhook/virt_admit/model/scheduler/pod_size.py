"""What each container of a pod requests and is limited to, and how the API server adds them up.

Source: k8s.io/component-helpers resource/helpers.go#PodRequests, #PodLimits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.scheduler.resources import (
    Resources,
    add,
    amounts,
    container_requests,
    is_sidecar,
    total_of,
    whole,
)


@dataclass(frozen=True, slots=True)
class Container:
    """What a container requests and is limited to. A limit without a request is the request."""

    requests: Resources
    limits: Resources
    name: str = ""
    is_sidecar: bool = False
    """A restartable init container: it runs next to all that start after it."""

    @classmethod
    def of(
        cls,
        requests: Mapping[str, int | Fraction],
        limits: Mapping[str, int | Fraction],
        name: str = "",
    ) -> Container:
        """Round up as kube-scheduler does."""
        limited = {key: whole(key, value) for key, value in limits.items()}
        return cls(
            {**limited, **{key: whole(key, value) for key, value in requests.items()}},
            limited,
            name,
        )


class PodSize(NamedTuple):
    """The containers of a pod, and its init containers in the order in which they start."""

    containers: tuple[Container, ...]
    init: tuple[Container, ...] = ()
    overhead: Resources = MappingProxyType({})
    summed: bool = False
    """The amounts are of the whole pod, not of each container: the webhook keeps pods so."""

    @property
    def every(self) -> tuple[Container, ...]:
        return self.containers + self.init

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
            containers=tuple(map(change, self.containers)), init=tuple(map(change, self.init))
        )

    def _total(self, of: Callable[[Container], Resources]) -> dict[str, int]:
        return total_of(
            map(of, self.containers), ((of(each), each.is_sidecar) for each in self.init)
        )


def read(spec: Field) -> PodSize:
    """Return the size of a pod with this spec, without resources set for the whole pod."""
    return PodSize(
        tuple(_container(item) for item in spec["containers"].items()),
        tuple(_container(item, is_sidecar(item)) for item in spec["initContainers"].items()),
        amounts(spec["overhead"].map),
        summed=any(not item["name"].present for item in spec["containers"].items()),
    )


def _container(item: Field, sidecar: bool = False) -> Container:
    limits = amounts(item.at("resources", "limits").map)
    return Container(container_requests(item), limits, item["name"].text or "", sidecar)
