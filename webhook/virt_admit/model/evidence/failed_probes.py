"""Pods that run and whose readiness probe has failed for long.

The kubelet writes what the probe answered into the event Unhealthy, and counts it up. An unsealed
standby of Vault answers 429 unless the probe asks with ``standbyok=true``, so that the active pod
alone is ready. Sources: kubernetes/kubernetes:pkg/kubelet/prober/prober.go#probe;
https://developer.hashicorp.com/vault/api-docs/system/health; hashicorp/vault-helm#1173.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from virt_admit.model.commands import logs_of, shell
from virt_admit.model.evidence import status_errors
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = union(
    clock.READS,
    {
        POD: (
            *("metadata.creationTimestamp", "metadata.labels", "metadata.ownerReferences"),
            *("spec.containers.name", "spec.containers.readinessProbe"),
            *("status.containerStatuses", "status.conditions.lastTransitionTime", *CONDITIONS),
        )
    },
)
_PATIENCE: Final = datetime.timedelta(hours=1)
"""What starts slowly is ready by then."""
_RECENT: Final = datetime.timedelta(minutes=10)
_START: Final = datetime.timedelta(minutes=5)
"""A pod that stopped to be ready so soon after it was made has never been, or for a moment."""
_PROGRESS: Final = re.compile(
    r"\d ?%|progress|sync|rebuil|recover|restor|replay|catching up|initiali[sz]ing|\bjoining",
    re.IGNORECASE,
)
"""What a replica says that becomes ready with time."""
_LONGEST: Final = 160
_VAULT: Final = "/v1/sys/health"
_STANDBY: Final = ("standbyok=true", "standbycode=")
_HELM: Final = "app.kubernetes.io/managed-by", "app.kubernetes.io/instance"


class FailedProbe(NamedTuple):
    """The readiness probe of a pod that runs, and what it answers."""

    pod: Object
    asks: str
    """As `` GET /healthz``; empty: it does not ask over HTTP."""
    said: str
    age: datetime.timedelta
    never: bool
    """Whether the pod has not been ready since it was made."""
    of_standby: bool
    """Whether it is a standby of Vault that answers as it should."""

    @property
    def _owner(self) -> str:
        owner = self.pod.controller
        kind = owner["kind"].text if owner is not None else ""
        return f"{kind} {owner['name'].text}" if owner is not None else f"pod {self.pod.name}"

    @property
    def lasts(self) -> bool:
        """Whether to wait does not help: what was ready before, or tells of progress, may be so
        again."""
        return self.of_standby or (self.never and not tells_of_progress(self.said))

    @property
    def advice(self) -> str:
        """What makes such pods ready."""
        if not self.lasts:
            return "wait until it is ready, or see why the program answers so"
        if not self.of_standby:
            return (
                "see why the program answers so, or correct the readiness probe of "
                f"{self._owner} (to wait does not help)"
            )
        where = f"the readiness probe of {self._owner}"
        if self._release:
            where = f"server.readinessProbe.path of the chart of {self._owner}"
        return (
            f"add standbyok=true to {where}, and replace the standby pods one by one, each once "
            "the one before is unsealed"
        )

    @property
    def _release(self) -> str:
        """Return the release of Helm of a pod of Vault; empty: not known."""
        managed, instance = _HELM
        labels = self.pod.labels
        chart = labels.get("helm.sh/chart") or labels.get(managed) == "Helm"
        return (labels.get(instance) or "") if chart else ""

    @property
    def command(self) -> str:
        """The command of the first step."""
        if self.of_standby and self._release:
            return shell("helm", "get", "values", self._release, "-n", self.pod.namespace)
        return logs_of(self.pod)


def tells_of_progress(said: str) -> bool:
    """Return whether what a probe answers is said by what becomes ready with time."""
    return _PROGRESS.search(said) is not None


def of_pods(pods: Iterable[Object], cluster: Cluster) -> FailedProbe | None:
    """Return the first of these pods whose probe has failed for long; None: none is known to."""
    return next(filter(None, (of_pod(pod, cluster) for pod in pods)), None)


def of_pod(pod: Object, cluster: Cluster) -> FailedProbe | None:
    """Return that the readiness probe of a pod has failed for long; None: that is not known."""
    ready = pod.condition("Ready")
    if pod.deleted or pod.ended or ready["status"].text != "False":
        return None
    began = clock.instant(ready["lastTransitionTime"].text)
    age, container = clock.elapsed(began, cluster), _unready(pod)
    if began is None or age is None or age < _PATIENCE or container is None:
        return None
    said = _answer(pod, container["name"].text or "", cluster)
    if not said:
        return None
    http = container.at("readinessProbe", "httpGet")
    path, _, query = (http["path"].text or "").partition("?")  # its values may be keys
    standby = (
        path == _VAULT and said.endswith(": 429") and not any(each in query for each in _STANDBY)
    )
    made = clock.instant(pod.created)
    answer = cut_middle(status_errors.plain(said).rstrip(". ").replace(";", ","), _LONGEST)
    asks = f" GET {cut_middle(path, _LONGEST)}" if http.is_map and path else ""
    never = made is not None and began - made < _START
    return FailedProbe(pod, asks, answer, age, never, standby)


def _answer(pod: Object, container: str, cluster: Cluster) -> str:
    """Return what the readiness probe of a container answered last; empty: no event says it.

    Each container has its own (kubernetes/kubernetes:pkg/kubelet/container/ref.go#fieldPath).
    """
    for event in events.about(pod, clock.ago(_RECENT, cluster), cluster):
        of = event.at("involvedObject", "fieldPath").text
        answer = events.probe_answer(event["reason"].text or "", events.message(event))
        if answer and (not of or of.endswith(f"{{{container}}}")):
            return answer
    return ""


def _unready(pod: Object) -> Field | None:
    """Return the first container that runs, has a readiness probe and is not ready; None: there is
    none."""
    states: Mapping[str, Field] = {
        each["name"].text or "": each for each in pod.at("status", "containerStatuses").items()
    }
    for container in pod.at("spec", "containers").items():
        state, has = states.get(container["name"].text or ""), container["readinessProbe"].is_map
        if state is None or not has or state["ready"].boolean is not False:
            continue
        if state.at("state", "running").present:
            return container
    return None


def words(every: Iterable[FailedProbe]) -> str:
    """Return that pods whose probes fail run and are not ready, and what the first one answers."""
    found = list(every)
    first, several = found[0], len(found) > 1
    least = min(found, key=lambda each: each.age)
    whose = names(sorted(each.pod.name for each in found))
    since = f" for {clock.duration(least.age)}"
    if all(each.never for each in found):
        since += f", since {'they were' if several else 'it was'} made"
    means = ", as a standby of Vault does without standbyok=true" if first.of_standby else ""
    return (
        f"pod{'s' * several} {whose} run{'s' * (not several)}, but the readiness probe"
        f"{first.asks} has failed{since}: {first.said}{means}"
    )
