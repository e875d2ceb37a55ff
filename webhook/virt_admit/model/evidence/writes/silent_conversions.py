"""Kinds whose objects cannot be read, as nothing answers for the conversion of their versions.

The API server converts an object that is stored in another version than the asked one by the
webhook of its CustomResourceDefinition. While no endpoint of that is ready, such a read fails, and
a program that reads the object as it starts ends. If the program behind the webhook is one of
these, none of them comes back. A definition whose objects are all stored in the storage version
(no other stored version is left, or a StorageVersionMigration has written them) is not told: the
programs of its release ask for that version. Sources: kubernetes/kubernetes:
staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/converter.go#ConvertToVersion;
kubevirt/hyperconverged-cluster-operator#4396.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.evidence import complaints, container_states, unready_pods
from virt_admit.model.evidence.writes import service_callers, stored_versions
from virt_admit.model.evidence.writes.service_callers import ServiceName
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry
from virt_admit.model.kubernetes.kinds import POD, SERVICE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut

READS: Final[Reads] = union(
    service_callers.READS,
    unready_pods.READS,
    {POD: ("metadata.labels", *container_states.FIELDS), SERVICE: ("spec.selector",)},
)
_READERS: Final[Mapping[str, str]] = {
    "hco-operator": "hyperconvergeds.hco.kubevirt.io",
    "virt-operator": "kubevirts.kubevirt.io",
    "cdi-operator": "cdis.cdi.kubevirt.io",
}
"""What Deployments read as they start, besides those behind the webhook itself."""


class SilentConversion(NamedTuple):
    """A kind whose stored objects cannot be converted."""

    definition: Object
    service: ServiceName
    pods: tuple[Object, ...]
    """The pods behind the webhook that end again and again."""
    why: str
    """What the first of them reports."""

    @property
    def kind(self) -> str:
        """Its kind, as ``HyperConverged``."""
        return self.definition.at("spec", "names", "kind").text or self.definition.name

    @property
    def words(self) -> str:
        """Why its objects cannot be read, as a clause."""
        title = f"{self.definition.kind} {self.definition.name}"
        stored = ", ".join(stored_in(self.definition))
        return (
            f"{self.kind} cannot be read where it has to be converted: {title} (storedVersions "
            f"{stored}) calls Service {'/'.join(self.service)}, which has no ready endpoint: Pod "
            f"{self.pods[0].name}: {cut(self.why, 120)}"
        )

    @property
    def remedy(self) -> str:
        """What lets the conversion answer again, with a command."""
        pod = self.pods[0]
        logs = shell(
            "kubectl", "logs", argument(pod.name), "-n", argument(pod.namespace), "--previous"
        )
        older = " or ".join(stored_in(self.definition)[:-1])
        return typed(
            f"Repair Pod {pod.full_name} first, which converts {self.kind}; its log says why it "
            "ends",
            logs,
            f"if it cannot read {self.kind} itself, neither comes back alone: install a release "
            "that serves its webhook before that, or run the webhook of the release before until "
            f"no {self.kind} is stored in {older}",
        )


def stored_in(definition: Object) -> list[str]:
    """Return the versions in which objects of a definition may be stored, the storage version
    last."""
    storage = stored_versions.storage_version(definition)
    every = [each.text or "?" for each in definition.at("status", "storedVersions").items()]
    return [*(each for each in every if each != storage), storage]


def of_deployment(deployment: Object, cluster: Cluster) -> SilentConversion | None:
    """Return the kind that the pods of a Deployment cannot read; None: nothing shows one, or they
    do not end again and again."""
    pods = [pod for pod in unready_pods.of(deployment, cluster) if _ends_again(pod)]
    if not pods:
        return None
    read = deployment.namespace, _READERS.get(deployment.name, "")
    places = {entry(cluster, _of_pods, pod.full_name) for pod in pods}
    places.add(entry(cluster, _of_kinds, read))
    known = [each for each in places if each is not None]
    return _known(cluster)[min(known)] if known else None


def _of_pods(cluster: Cluster) -> Mapping[str, int]:
    """Return the place of the first conversion that a pod would do."""
    every = _known(cluster)
    first = {each.service: place for place, each in reversed([*enumerate(every)])}
    last_first = sorted(first.values(), reverse=True)
    return {pod.full_name: place for place in last_first for pod in every[place].pods}


def _of_kinds(cluster: Cluster) -> Mapping[tuple[str, str], int]:
    """Return the place of each conversion by the namespace of its Service and its definition."""
    return {
        (each.service[0], each.definition.name): place for place, each in enumerate(_known(cluster))
    }


@cached
def _known(cluster: Cluster) -> Sequence[SilentConversion]:
    definitions = [
        (definition, name)
        for definition in cluster.known(stored_versions.CRD)
        if all(name := _converter(definition, cluster))
    ]
    services = {name: _behind(name, cluster) for name in {name for _, name in definitions}}
    return tuple(
        SilentConversion(definition, name, pods, told)
        for definition, name in definitions
        for pods, told in services[name]
    )


def _converter(definition: Object, cluster: Cluster) -> ServiceName:
    """Return the Service that converts the objects of a definition; empty names: none has to be
    converted, as far as is known."""
    conversion, stored = definition.at("spec", "conversion"), stored_in(definition)
    is_known = len(stored) > 1 and stored[-1]
    if conversion["strategy"].text != "Webhook" or not is_known:
        return "", ""
    if stored_versions.migration(definition, stored[-1], cluster):
        return "", ""
    service = conversion.at("webhook", "clientConfig", "service")
    return service["namespace"].text or "", service["name"].text or ""


def _behind(name: ServiceName, cluster: Cluster) -> Sequence[tuple[tuple[Object, ...], str]]:
    """Return the pods behind a Service that has no ready endpoint, if they end again and again, and
    what the first reports: one pair, or none."""
    found = find(cluster, SERVICE, *name) if service_callers.silence(name, cluster) else None
    chosen = found.at("spec", "selector").map if found is not None else {}
    selector = selectors.parse({"matchLabels": dict(chosen)})
    pods = tuple(
        pod
        for pod in (cluster.known(POD, name[0]) if chosen else ())
        if selector.matches(pod.labels) and _ends_again(pod)
    )
    told = next(complaints.of(pods[0], cluster), None) if pods else None
    return [(pods, told.words)] if told is not None else []


def _ends_again(pod: Object) -> bool:
    """Return whether a container of a pod has failed, and does not run."""
    failed = any(end["exitCode"].integer for _, end in container_states.terminations(pod))
    return failed and not pod.ended and not pod.is_true("Ready")
