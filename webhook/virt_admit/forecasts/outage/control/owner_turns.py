"""Whether the owner of a marked Machine of Cluster API deletes it: in turn, and in no upgrade.

Its health check only marks a Machine (``machine_owners.decide``). KubeadmControlPlane also keeps
the quorum of etcd. That is not judged here: without quorum the API stops. Sources, compared in
``tests/upstream/owners.py``: kubernetes-sigs/cluster-api: core/reconcilers/machineset/
machineset_controller.go#reconcileUnhealthyMachines, machineset_preflight.go#runPreflightChecks;
controlplane/kubeadm/reconcilers/kubeadmcontrolplane/remediation.go#reconcileUnhealthyMachines
#checkRetryLimits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain.states.vm_states_times import moment
from virt_admit.forecasts.outage import machine_replacement
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.remediation.ends import stale_annotations
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock, json_codec
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.int_or_percent import LimitError, LimitKind, parse_int_or_percent
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    KUBEADM,
    MACHINE_DEPLOYMENT,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import SECOND, parse_duration
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.machine_pools import DEPLOYMENT
from virt_admit.model.messages import names
from virt_admit.model.remediation import health_checks, machine_drain, machine_owners, machines

READS: Final[Reads] = union(
    stale_annotations.READS,
    {KUBEADM: (), MACHINE_DEPLOYMENT: (), CAPI_MACHINE_SET: (), CAPI_CLUSTER: ()},
)

_REVISION: Final = "machinedeployment.clusters.x-k8s.io/revision"
_SKIPPED: Final = "machineset.cluster.x-k8s.io/skip-preflight-checks"
_OLDER: Final = 3
"""By how many minor versions nodes may be older than the control plane."""
_CONFIG: Final = "KubeadmConfigTemplate"
"""kubeadm joins nodes of its own minor version alone."""
_REPLACES: Final = "controlplane.cluster.x-k8s.io/remediation-for"
"""The annotation of a Machine with the one that it replaces, as JSON."""
_HEALTHY: Final = 3600
"""Seconds after which another failure counts as a new one, if ``minHealthyPeriod`` is not set."""

Doubts = Iterator[str]


@dataclass(frozen=True, slots=True)
class Marked:
    """Machines that a health check marks because of a loss."""

    machine: Object
    by_node: Mapping[str, Object]
    """All Machines of the check."""
    unhealthy: Collection[str]
    """The names of those that were unhealthy before."""
    wait: int
    """Seconds from the loss until they are marked."""
    loss: Loss

    @property
    def title(self) -> str:
        return machine_owners.title(self.machine)

    def rivals(self) -> Iterator[tuple[str, Object]]:
        """Yield the other Machines of the owner whose nodes are lost too."""
        for node, other in self.by_node.items():
            if (
                node in self.loss.lost
                and other.name != self.machine.name
                and self.is_sibling(other)
            ):
                yield node, other

    def siblings(self) -> Iterator[Object]:
        """Yield the known Machines of the owner, this one too."""
        known = self.loss.cluster.known(CAPI_MACHINE, self.machine.namespace)
        yield from (each for each in known if self.is_sibling(each))

    def is_sibling(self, other: Object) -> bool:
        """Return whether a Machine has the same owner."""
        return (
            other.namespace == self.machine.namespace and machine_owners.title(other) == self.title
        )

    def get(self, kind: Kind, name: str) -> Object | None:
        """Return an object of the namespace. Raises Unseen."""
        return self.loss.cluster.get(kind, self.machine.namespace, name)


def refusal(marked: Marked) -> tuple[str, tuple[str, ...]]:
    """Return why the owner never deletes a Machine, and what is not known. Empty: it does."""
    owner = marked.machine.controller
    kinds = {"MachineSet": CAPI_MACHINE_SET, machine_owners.KUBEADM: KUBEADM}
    kind = kinds.get(owner["kind"].text or "") if owner is not None else None
    if owner is not None and owner["kind"].text == machine_nodes.MACHINE_POOL:
        return "", (_whether(marked, machine_owners.BY_PROVIDER),)
    if owner is None or kind is None:
        return "", ()
    try:
        found = marked.get(kind, owner["name"].text or "")
        if found is None:
            return "", ()
        if found.annotation(health_checks.PAUSED).present:
            return f"{marked.title} is paused by the annotation {health_checks.PAUSED}", ()
        if kind is KUBEADM:
            held = stale_annotations.of_machine(marked.machine, marked.loss.cluster)
            if held is not None and held.certain:
                return held.reason, ()
            told = () if held is None else (_whether(marked, held.brief),)
            return "", (*told, *_of_control_plane(found, marked))
        limit = _limit(found, marked)
        if limit is not None and limit.number == 0:
            return f"{limit.of} allows maxInFlight 0, so it deletes no unhealthy Machine", ()
        return "", (*_of_set(found, marked), *(_turn(limit, marked) if limit is not None else ()))
    except Unseen as unseen:
        return "", (unseen.what,)


def _whether(marked: Marked, why: str) -> str:
    return f"whether {marked.title} deletes {marked.machine.name}: {why}"


# --- MachineSet -----------------------------------------------------------------------------------


def _deployment(machine_set: Object, marked: Marked) -> Object | None:
    name = machine_set.labels.get(DEPLOYMENT)
    return marked.get(MACHINE_DEPLOYMENT, name) if name else None


def _of_set(machine_set: Object, marked: Marked) -> Doubts:
    """Yield what may keep a MachineSet from deleting a Machine."""
    deployment = _deployment(machine_set, marked)
    both = (each for each in (machine_set, deployment) if each is not None)
    if len({each.annotations.get(_REVISION) for each in both} - {None}) > 1:
        yield _whether(
            marked, "only the roll-out of its MachineDeployment deletes an older revision"
        )
    cluster = marked.get(CAPI_CLUSTER, marked.machine.at("spec", "clusterName").text or "")
    reference = cluster.at("spec", "controlPlaneRef") if cluster is not None else None
    if reference is None or reference["kind"].text != machine_owners.KUBEADM:
        return
    control = marked.get(KUBEADM, reference["name"].text or "")
    for check, why in _preflight(machine_set, control, cluster) if control is not None else ():
        if not {check, "All"} & {
            each.strip() for each in machine_set.annotations.get(_SKIPPED, "").split(",")
        }:
            yield _whether(marked, f"its preflight check {check} waits, as {why}")


def _preflight(
    machine_set: Object, control: Object, cluster: Object | None
) -> Iterator[tuple[str, str]]:
    """Yield the preflight checks of a MachineSet that fail, each with the reason."""
    title = f"{machine_owners.KUBEADM} {control.name}"
    above = versions.parse_version(control.at("spec", "version").text)
    if above is None:  # nothing is checked then
        return
    if why := _unstable(control, above, cluster):
        yield "ControlPlaneIsStable", f"{title} {why}"
    template = machine_set.at("spec", "template", "spec")
    own = versions.parse_version(template["version"].text)
    if own is None:
        return
    differ = f"the version of the MachineSet is {template['version'].text}, and that of {title} is"
    differ = f"{differ} {control.at('spec', 'version').text}"
    if not above.minor - _OLDER <= own.minor <= above.minor:
        yield "KubernetesVersionSkew", differ
    if template.at("bootstrap", "configRef", "kind").text == _CONFIG and own.minor != above.minor:
        yield "KubeadmVersionSkew", differ
    if cluster is not None and cluster.at("spec", "topology").present and own != above:
        yield "ControlPlaneVersionSkew", differ


def _unstable(control: Object, wanted: versions.Version, cluster: Object | None) -> str:
    """Return what a control plane does that holds up MachineSets; empty: it is stable."""
    if cluster is not None and (pending := _pending(control, cluster)):
        return pending
    status = control["status"]
    reported = [each["version"].text for each in status["versions"].items()] or [
        status["version"].text
    ]
    if not any(reported):
        begun = status["initialized"], status.at("initialization", "controlPlaneInitialized")
        return "" if any(each.boolean for each in begun) else "is being provisioned"
    current = [version for version in map(versions.parse_version, reported) if version is not None]
    return "is upgrading" if current and wanted > min(current) else ""


def _pending(control: Object, cluster: Object) -> str:
    """Return that a topology wants another version of a control plane; empty: it does not."""
    topology = cluster.at("spec", "topology", "version").text
    own = control.at("spec", "version").text
    step = cluster.annotations.get("topology.internal.cluster.x-k8s.io/upgrade-step")
    return (
        f"waits for its upgrade to {topology}" if topology and own not in {topology, step} else ""
    )


@dataclass(frozen=True, slots=True)
class _Limit:
    """How many Machines a MachineSet deletes at once because they are unhealthy."""

    number: int
    text: str
    of: str


def _limit(machine_set: Object, marked: Marked) -> _Limit | None:
    """Return the limit of the MachineDeployment. None: there is none."""
    deployment = _deployment(machine_set, marked)
    if deployment is None:
        return None
    spec = deployment["spec"]
    field = spec.at("remediation", "maxInFlight")
    field = field if field.present else spec.at("strategy", "remediation", "maxInFlight")
    try:
        limit = parse_int_or_percent(field.value, LimitKind.CLUSTER_API)
    except LimitError:
        return None
    replicas = spec["replicas"].integer
    every = 1 if replicas is None else replicas
    number = -(-limit.number * every // 100) if limit.percent else limit.number
    return _Limit(number, str(limit), f"MachineDeployment {deployment.name}")


def _turn(limit: _Limit, marked: Marked) -> Doubts:
    """Yield that others may be deleted first and never be gone.

    Nodes are noticed up to 15 s apart, so any one may be first.
    """
    rivals = {other.name: node for node, other in marked.rivals()}
    held = []
    for other in marked.siblings():
        if other.name in rivals:
            freed = machine_replacement.by_deletion(other, rivals[other.name], marked.loss)
            held += [other.name] if isinstance(freed, str) or freed.unseen else []
        elif other.name in marked.unhealthy or (other.deleted and _is_remediated(other)):
            held.append(other.name)
    first = sorted(name for name in held if name != marked.machine.name)
    if len(first) >= limit.number:
        stuck = f"the deletion of {names(first)} may not end"
        yield _whether(marked, f"{limit.of} allows maxInFlight {limit.text}, and {stuck}")


def _is_remediated(machine: Object) -> bool:
    """Return whether its owner deletes a Machine because of a health check."""
    return machine_drain.condition(machine, "OwnerRemediated")["reason"].text == "MachineDeleting"


# --- KubeadmControlPlane --------------------------------------------------------------------------


def _of_control_plane(control: Object, marked: Marked) -> Doubts:
    """Yield what may keep a KubeadmControlPlane from deleting a Machine."""
    others = [each for each in marked.siblings() if each.name != marked.machine.name]
    checks: Sequence[tuple[str, Callable[[Object], bool]]] = (
        ("is being deleted", lambda each: each.deleted),
        ("is not a node yet", lambda each: not machines.node_name(each)),
        (
            "is unhealthy too, and only one is replaced at a time",
            lambda each: each.name in marked.unhealthy,
        ),
    )
    lost = sorted(other.name for _, other in marked.rivals())
    others = [each for each in others if each.name not in lost]
    for why, is_so in checks:
        if found := [each.name for each in others if is_so(each)]:
            yield _whether(marked, f"{names(found)} {why}")
            others = [each for each in others if each.name not in found]
    if lost:
        yield _whether(marked, f"{names(lost)} is lost too, and only one is replaced at a time")
    cluster = marked.get(CAPI_CLUSTER, marked.machine.at("spec", "clusterName").text or "")
    if cluster is not None and (pending := _pending(control, cluster)):
        yield _whether(marked, f"it {pending}")
    yield from _again(control, marked)


def _again(control: Object, marked: Marked) -> Doubts:
    """Yield that a Machine is a new replacement, so that it is not replaced yet."""
    replaced, last, retries = _replaced(marked.machine)
    now = clock.now(marked.loss.cluster)
    if last is None:
        return
    if now is None:
        yield _whether(marked, f"it replaces {replaced}, and the time is not known")
        return
    period, pause, most = _retries(control)
    with contextlib.suppress(OverflowError):  # of a year that no clock shows
        marks, end = now + timedelta(seconds=marked.wait), last + timedelta(seconds=period)
        until = last + timedelta(seconds=pause)
        if most is not None and retries >= most:
            until = max(until, end)
        if marks < min(until, end):
            stays = f"so that it stays until {moment(min(until, end), now)}"
            yield _whether(marked, f"it replaces {replaced}, {stays}")


def _replaced(machine: Object) -> tuple[str, datetime | None, int]:
    """Return what a Machine replaces, when that was deleted, and the retries before."""
    data = json_codec.embedded(machine.annotations.get(_REPLACES))
    found = data if isinstance(data, dict) else {}
    name, since, retries = found.get("machine"), found.get("timestamp"), found.get("retryCount")
    count = retries if isinstance(retries, int) else 0
    if isinstance(name, str) and isinstance(since, str):
        return name, clock.instant(since), count
    return "", None, 0


def _retries(control: Object) -> tuple[int, int, int | None]:
    """Return the healthy period and the pause in seconds, and the most retries; None: no limit."""
    newer, older = control.at("spec", "remediation"), control.at("spec", "remediationStrategy")
    most = newer["maxRetry"].integer
    most = older["maxRetry"].integer if most is None else most

    def seconds(field: str, default: int) -> int:
        found = newer[f"{field}Seconds"].integer
        try:
            found = parse_duration(older[field].value) // SECOND if found is None else found
        except ValueError:
            found = default
        return clock.bounded(found)

    return seconds("minHealthyPeriod", _HEALTHY), seconds("retryPeriod", 0), most
