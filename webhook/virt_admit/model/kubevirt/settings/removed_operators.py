"""KubeVirt, CDI or HyperConverged that is being deleted while its operator, which alone can end
that, is gone already.

The operator removes the finalizer of its object after everything else. Deleted first, it leaves
webhooks that fail closed and APIServices without a Service: they refuse changes of VMs, and
virt-operator's own refuses the update that removes the finalizer. virt-operator that comes back
goes on with the deletion, which begins with the definitions of VMs, and so with all VMs.
CDI and HyperConverged own what they made. Without the finalizer, the garbage collector deletes it,
with the disks or with KubeVirt, so no command removes theirs. Sources:
kubevirt/kubevirt:pkg/virt-operator/resource/apply/delete.go#DeleteAll,
pkg/virt-operator/util/client.go#KubeVirtFinalizer, issue 13098;
containerized-data-importer:pkg/operator/controller/controller.go;
hyperconverged-cluster-operator:controllers/hyperconverged/hyperconverged_controller.go#FinalizerName.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, json_patch, shell, typed
from virt_admit.model.kubernetes import clock, kinds, service_endpoints, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, gather
from virt_admit.model.kubernetes.json_patch import Patch, PatchVerb
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, NAME, Reads, union
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause, problem_of

READS: Final[Reads] = union(
    clock.READS,
    service_endpoints.READS,
    webhook_requests.READS,
    {
        kinds.KUBEVIRT: (),
        kinds.CDI: (),
        kinds.HCO: (),
        kinds.DEPLOYMENT: NAME,
        kinds.POD: ("metadata.labels", "status.phase", *CONDITIONS),
        kinds.NAMESPACE: NAME,
        kinds.API_SERVICE: ("spec.service",),
    },
)

_OPERATORS: Final[dict[kinds.Kind, tuple[str, ...]]] = {
    kinds.KUBEVIRT: ("virt-operator",),
    kinds.CDI: ("cdi-operator",),
    kinds.HCO: ("hco-operator", "hyperconverged-cluster-operator"),
}
"""The Deployments that remove the finalizers, the name of the operator first."""
_FINALIZERS: Final[dict[kinds.Kind, frozenset[str]]] = {
    kinds.KUBEVIRT: frozenset(("foregroundDeleteKubeVirt", "kubevirt.io/foregroundDeleteKubeVirt")),
    kinds.CDI: frozenset(("operator.cdi.kubevirt.io",)),
    kinds.HCO: frozenset(("kubevirt.io/hyperconverged", "hyperconvergeds.hco.kubevirt.io")),
}
"""The finalizers that the operators remove, of old releases too."""
_SETTLED: Final = timedelta(minutes=10)
"""So long an operator that restarts may have no Ready pod."""
_OF_CDI: Final = "cdi-api"
_PARTS: Final = ("virt-api", "virt-controller", "virt-handler")


class RemovedProduct(NamedTuple):
    """An object whose deletion cannot end, as its operator is gone."""

    obj: Object
    kind: kinds.Kind
    held: tuple[Field, ...]
    """The finalizers of its operator; others are not the operator's to remove."""
    lasts: str
    """Since when it is being deleted, as `` for 64 min``; empty: not known."""
    leftovers: tuple[tuple[str, Object], ...]
    """Webhook configurations and APIServices without their Service, by the word of kubectl."""
    terminating: bool
    """Whether its namespace is being deleted too."""
    idle: bool
    """Whether no part of KubeVirt runs any more."""

    @property
    def operator(self) -> str:
        """The operator that removes the finalizer."""
        return _OPERATORS[self.kind][0]

    @property
    def finalizers(self) -> str:
        """The finalizers of the operator, as one text."""
        return _texts(self.held)

    @property
    def reason(self) -> str:
        """Why the object stays."""
        by = f"{self.operator}, which alone removes it, is gone"
        space = f"; namespace {self.obj.namespace} stays Terminating" if self.terminating else ""
        return f"it is being deleted{self.lasts}, kept by finalizer {self.finalizers}: {by}{space}"

    @property
    def effect(self) -> str:
        """What follows for VMs; empty: nothing is known to."""
        if not self.idle:
            return ""
        return (
            f"No {', '.join(_PARTS)} runs: VMs run on, but cannot be changed, deleted or migrated"
        )

    def steps(self, width: int = 150) -> str:
        """Return what to do, in order. ``width``: of the names of what is left; 0: without them."""
        left = names((obj.name for _, obj in self.leftovers), width) if width else ""
        if self.kind in _OWNED:
            refuses = f". What is left refuses requests: {left}" if left else ""
            return (
                f"do not remove the finalizer: {_OWNED[self.kind]}. Check uninstallStrategy and "
                f"ownerReferences before {self.operator} comes back: it goes on with the "
                f"removal{refuses}"
            )
        listed = f" ({left})" if left else ""
        first = (
            f"delete what is left and refuses requests{listed}, then the finalizer"
            if self.leftovers
            else "remove the finalizer"
        )
        return f"{first}; then install KubeVirt again{_NOT_BEFORE}"

    def leaves(self, obj: Object) -> bool:
        """Return whether an object of the product is left that calls a missing Service."""
        return any((each.kind, each.name) == (obj.kind, obj.name) for _, each in self.leftovers)

    @property
    def services(self) -> Iterator[tuple[str, str]]:
        """The Services that what is left calls, as namespace and name."""
        for _, obj in self.leftovers:
            yield from (each for each in _services(obj) if each[0] == self.obj.namespace)

    @property
    def command(self) -> str:
        """The steps as a command, without the installation; of an owner of VMs or disks a look."""
        if self.kind in _OWNED:
            return about("get", self.obj, self.kind, "-o", "yaml")
        left = [f"{word}/{argument(obj.name)}" for word, obj in self.leftovers]
        # the last first, so that none moves another; tested, as the list may have changed since
        steps = [Patch(op, each.path, each.text) for each in reversed(self.held) for op in _SAFELY]
        patch = json_patch(self.kind, self.obj.name, self.obj.namespace, steps)
        return f"{shell('kubectl', 'delete', *left)} && {patch}" if left else patch

    @property
    def of_vms(self) -> Problem:
        """Why no VM is migrated or started."""
        name = f"{self.kind.kind} {self.obj.full_name}"
        kept = (
            f"{name} is being deleted{self.lasts}, and {self.operator} is gone, which alone "
            "removes its finalizer"
        )
        reason = (
            f"nothing of KubeVirt runs, so no VM is migrated or started: {kept} {self.finalizers}"
        )
        remedy = typed(
            f"do not drain before KubeVirt is installed again: {self.steps(60)}", self.command
        )
        return Problem(
            reason, remedy, id=problem_of(ProblemCause.COMPONENT, self.obj), command=self.command
        )


_NOT_BEFORE: Final = ", not before: virt-operator would delete all VMs"
_SAFELY: Final[tuple[PatchVerb, ...]] = ("test", "remove")
_OWNED: Final = {
    kinds.CDI: (
        "the definition of DataVolumes may then be deleted, with all DataVolumes, their PVCs and "
        "so the disks of VMs"
    ),
    kinds.HCO: "KubeVirt, which it owns, is then deleted, and virt-operator deletes all VMs",
}
"""What the garbage collector does once the finalizer is removed."""
_GOES_ON: Final = {
    kinds.KUBEVIRT: "deletes all VMs",
    kinds.CDI: "may delete all DataVolumes, their PVCs and so the disks of VMs",
    kinds.HCO: "deletes KubeVirt, so that virt-operator deletes all VMs",
}
"""What an operator does that goes on with the removal."""


@cached
def kubevirt(cluster: Cluster) -> RemovedProduct | None:
    """Return the KubeVirt of which nothing runs; None: something does, or it is not known."""
    for each in (obj for obj in cluster.known(kinds.KUBEVIRT) if obj.deleted):
        try:
            found = of(each, kinds.KUBEVIRT, cluster)
        except Unseen:
            continue
        if found is not None and found.idle:
            return found
    return None


def of(obj: Object, kind: kinds.Kind, cluster: Cluster) -> RemovedProduct | None:
    """Return that the deletion of an object cannot end; None: it is not being deleted,
    or its operator exists.

    Raises:
        Unseen: it cannot be determined whether its operator exists.
    """
    held = _held(obj, kind)
    if not obj.deleted or not held:
        return None
    for word in (kinds.DEPLOYMENT, kinds.POD):
        if any(_is_operator(found, kind) for found in cluster.list(word)):
            return None
    pods = cluster.known(kinds.POD)
    parts = {each.labels.get("kubevirt.io") for each in pods if not each.ended}
    space = find(cluster, kinds.NAMESPACE, "", obj.namespace) if kind.namespaced else None
    return RemovedProduct(
        obj,
        kind,
        held,
        clock.lasting(obj.metadata["deletionTimestamp"].text, cluster),
        tuple(_leftovers(obj, kind, cluster)),
        space is not None and space.deleted,
        kind is kinds.KUBEVIRT and parts.isdisjoint(_PARTS),
    )


def idle_operator(obj: Object, kind: kinds.Kind, cluster: Cluster) -> Problem | None:
    """Return that an object is being deleted while its operator exists and has no Ready pod; None:
    it has, or is gone.

    Raises:
        Unseen: its pods cannot be determined.
    """
    lasts = clock.since(obj.metadata["deletionTimestamp"].text, cluster)
    held = _held(obj, kind)
    own = next((each for each in cluster.known(kinds.DEPLOYMENT) if _is_operator(each, kind)), None)
    if lasts is None or lasts < _SETTLED or not held or own is None:
        return None
    pods = [each for each in cluster.list(kinds.POD) if _is_operator(each, kind)]
    if any(each.is_true("Ready") for each in pods):
        return None
    by = f"{own.name}, which alone removes it, has no Ready pod"
    reason = (
        f"it is being deleted for {clock.duration(lasts)}, kept by finalizer {_texts(held)}: {by}"
    )
    remedy = (
        f"repair {own.name} only if that may happen: it goes on with the removal and "
        f"{_GOES_ON[kind]}"
    )
    return Problem(reason, remedy, command=about("describe", own, kinds.DEPLOYMENT))


def _held(obj: Object, kind: kinds.Kind) -> tuple[Field, ...]:
    return tuple(
        each for each in obj.metadata["finalizers"].items() if each.text in _FINALIZERS[kind]
    )


def _texts(held: Sequence[Field]) -> str:
    return ", ".join(each.text or "" for each in held)


def _is_operator(obj: Object, kind: kinds.Kind) -> bool:
    if obj.kind == kinds.POD.kind:
        mine = any(obj.name.startswith(f"{name}-") for name in _OPERATORS[kind])
        return mine and not obj.ended
    return obj.name in _OPERATORS[kind]


def _leftovers(obj: Object, kind: kinds.Kind, cluster: Cluster) -> Iterator[tuple[str, Object]]:
    """Yield what calls only Services of the product that do not exist any more.

    Others may still use the rest.
    """
    for each in (*webhook_requests.CONFIGURATIONS, kinds.API_SERVICE):
        for found in gather(cluster.list(each))[0]:
            services = _services(found)
            if services and all(_is_gone(service, obj, kind, cluster) for service in services):
                yield each.kind.lower(), found


def _services(obj: Object) -> Sequence[tuple[str, str]]:
    """Return the Service of each webhook or of the API; empty: it calls none, but a URL."""
    fields = (
        [obj.at("spec", "service")]
        if obj.kind == kinds.API_SERVICE.kind
        else [each.at("clientConfig", "service") for each in obj["webhooks"].items()]
    )
    return [(each["namespace"].text or "", each["name"].text or "") for each in fields]


def _is_gone(service: tuple[str, str], obj: Object, kind: kinds.Kind, cluster: Cluster) -> bool:
    own = bool(service[1]) and (
        service[0] == obj.namespace if kind.namespaced else service[1] == _OF_CDI
    )
    return own and is_absent(cluster, kinds.SERVICE, *service)
