"""Pods of KubeVirt's components that virt-operator counts as out of date.

It compares three annotations of each running pod with the status of the KubeVirt object, and says
``DeploymentInProgress`` as long as one differs. The pod is Running and Ready, and nothing replaces
it: its DaemonSet compares ``controller-revision-hash`` alone. Harvester's own migrate action asks
for ``Available``. Sources: kubevirt/kubevirt:pkg/virt-operator/util/readycheck.go#PodIsUpToDate
#DaemonsetIsReady #DeploymentIsReady; harvester/harvester:pkg/api/vm/handler.go#migrate, issue
10447.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DAEMON_SET, DEPLOYMENT, POD, REPLICA_SET
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import count, names

_PREFIX: Final = "kubevirt.io/install-strategy-"
_TARGETS: Final = {
    "version": "targetKubeVirtVersion",
    "registry": "targetKubeVirtRegistry",
    "identifier": "targetDeploymentID",
}
"""The annotations by their last word, and the fields of the status with what they must be."""
_COMPONENTS: Final = frozenset(
    f"virt-{each}"
    for each in ("api", "controller", "exportproxy", "handler", "synchronization-controller")
)
"""Its own deployment, virt-operator, has no such annotations."""
_TEMPLATE: Final = "spec.template.metadata.annotations"
READS: Final[Reads] = {
    POD: (
        "metadata.labels",
        "metadata.ownerReferences",
        "spec.nodeName",
        "status.phase",
        *(f"metadata.annotations.{_PREFIX}{each}" for each in _TARGETS),
    ),
    DAEMON_SET: (_TEMPLATE,),
    REPLICA_SET: ("metadata.ownerReferences", _TEMPLATE),
}


class OutdatedComponent(NamedTuple):
    """A running pod because of which KubeVirt is not available."""

    pod: Object
    why: str
    remedy: str


def first(kubevirt: Object, pods: Iterable[Object], cluster: Cluster) -> OutdatedComponent | None:
    """Return the first pod that virt-operator waits for, with the number of the others; None: all
    are up to date, or what they must have is not known.
    """
    wanted = {key: kubevirt.at("status", field).text or "" for key, field in _TARGETS.items()}
    if not all(wanted.values()):
        return None
    found = sorted(
        (
            pod
            for pod in pods
            if pod.labels.get("kubevirt.io") in _COMPONENTS and not pod.deleted
            if pod.at("status", "phase").text == "Running"
            if _differs(pod.metadata["annotations"], wanted)
        ),
        key=lambda each: each.full_name,
    )
    if not found:
        return None
    pod = found[0]
    node, more = pod.at("spec", "nodeName").text or "", len(found) - 1
    others = f", and {count(more, 'other pod')}" if more else ""
    why = (
        f"virt-operator counts pod {pod.name}{f' on {node}' if node else ''} as out of date"
        f"{others}: {_words(pod, wanted)}"
    )
    stays, remedy = _remedy(pod, wanted, cluster)
    return OutdatedComponent(pod, f"{why}, and no rollout replaces it" if stays else why, remedy)


def _differs(annotations: Field, wanted: dict[str, str]) -> list[str]:
    return [key for key, value in wanted.items() if annotations[f"{_PREFIX}{key}"].text != value]


def _words(pod: Object, wanted: dict[str, str]) -> str:
    """Return in what the annotations of a pod differ from what they must be."""
    own = pod.metadata["annotations"]
    differing = _differs(own, wanted)
    if missing := [key for key in differing if own[f"{_PREFIX}{key}"].text is None]:
        keys = names(f"{'' if index else _PREFIX}{key}" for index, key in enumerate(missing))
        return f"it lacks the annotation{'s' * (len(missing) > 1)} {keys}"
    key = differing[0]
    given = own[f"{_PREFIX}{key}"].text
    return f"its annotation {_PREFIX}{key} is {given}, and KubeVirt wants {wanted[key]}"


def _remedy(pod: Object, wanted: dict[str, str], cluster: Cluster) -> tuple[bool, str]:
    """Return whether no rollout replaces a pod, and what gives KubeVirt one that is up to date: its
    owner makes one only if its template is."""
    kind = DAEMON_SET if pod.owned_by(DAEMON_SET.kind) else REPLICA_SET
    owner, node = pod.owned_by(kind.kind), pod.at("spec", "nodeName").text
    if not owner:
        return False, typed(f"see what made pod {pod.name}", about("describe", pod, POD))
    made = find(cluster, kind, pod.namespace, owner)
    template = made.at("spec", "template", "metadata", "annotations") if made is not None else None
    if template is not None and not _differs(template, wanted):
        quiet = f" while no migration from or to {node} runs" if kind is DAEMON_SET and node else ""
        words = (
            f"delete that pod{quiet}; {kind.kind} {owner} makes it again with the annotations of "
            "its template, and running VMs go on"
        )
        return True, typed(words, about("delete", pod, POD))
    top = made.owned_by(DEPLOYMENT.kind) if made is not None else ""
    last, name = (DEPLOYMENT, top) if top else (kind, owner)
    see = kubectl("describe", last, name, pod.namespace)
    return False, typed(f"see why {last.kind} {name} does not replace it", see)


_HARVESTER: Final = ("harvester-system", "kubevirt")
"""Namespace and name of the KubeVirt object for which Harvester asks."""


def harvester_refusal(kubevirt: Object) -> str:
    """Return that Harvester's own action refuses migrations because of this object; empty: it does
    not, or that is not known.
    """
    available = kubevirt.condition("Available")
    ready = available["status"].text == "True" and available["reason"].text == "AllComponentsReady"
    if (kubevirt.namespace, kubevirt.name) != _HARVESTER or not available.present or ready:
        return ""
    return (
        'Meanwhile Harvester refuses each migration ("KubeVirt is not ready"); virtctl migrate '
        "and evictions work"
    )
