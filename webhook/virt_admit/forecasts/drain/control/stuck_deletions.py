"""VMs and namespaces whose deletion does not end: which finalizer keeps them, and why its
controller does not remove it.

virt-controller takes its finalizer from a VM by an update, once its VMI is gone. KubeVirt 0.59.0
looks the instance type up in that update, and refuses it where the namespace has lost the instance
type first. Sources: kubevirt/kubevirt: pkg/virt-controller/watch/vm/vm.go#removeVMFinalizer, issue
9438 (pull requests 9439 and 9534), pkg/storage/snapshot/source.go#Lock; kubernetes/kubernetes:
pkg/controller/namespace/deletion/status_condition_utils.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.control import held_copies, vm_writes
from virt_admit.model import api_discovery
from virt_admit.model.commands import json_patch, kubectl, shell, typed
from virt_admit.model.evidence.writes import missing_services
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import (
    API_SERVICE,
    CLUSTER_INSTANCETYPE,
    CLUSTER_PREFERENCE,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    INSTANCETYPE,
    NAMESPACE,
    POD,
    PREFERENCE,
    VM,
    VM_SNAPSHOT,
    VMI,
)
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import NAME, Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import removed_operators, versions
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import cut_middle, ended, sentence
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    clock.READS,
    api_discovery.READS,
    removed_operators.READS,
    missing_services.READS,
    dict.fromkeys(
        (INSTANCETYPE, CLUSTER_INSTANCETYPE, PREFERENCE, CLUSTER_PREFERENCE, CONTROLLER_REVISION),
        NAME,
    ),
    {
        NAMESPACE: ("metadata.labels", "status.conditions"),
        API_SERVICE: ("spec.group", "spec.version"),
        VM: (
            *("metadata.finalizers", "metadata.labels", "spec.instancetype", "spec.preference"),
            *("spec.template.spec.terminationGracePeriodSeconds", "status.snapshotInProgress"),
        ),
        VMI: (
            "metadata.finalizers",
            "spec.terminationGracePeriodSeconds",
            "status.phase",
            "status.nodeName",
        ),
        VM_SNAPSHOT: ("metadata.creationTimestamp", "spec.source.name", "status"),
    },
)

OF_KUBEVIRT: Final = "kubevirt.io/virtualMachineControllerFinalize"
"""The finalizer of virt-controller on VMs and VMIs."""
_OF_SNAPSHOT: Final = "snapshot.kubevirt.io/snapshot-source-protection"
_USUAL: Final = timedelta(minutes=10)
"""So long the deletion of a VM or of a namespace is nothing unusual,
beside the time that its guest may take.
"""
_GRACE: Final = 180
"""Seconds a guest gets to shut down where its VM says nothing (KubeVirt's default is 30;
templates write 180).
"""
_LOOKED_UP: Final = (versions.Version(0, 59), versions.Version(0, 59, 1))
"""From which release on VMs have a finalizer,
and from which on its removal does not look up the instance type.
"""


class StuckVm(NamedTuple):
    """A VM whose deletion does not end."""

    problem: Problem
    namespace: str
    """The namespace that stays Terminating because of it; empty: none."""

    @property
    def reason(self) -> str:
        """Why it stays, with what it holds."""
        held = f", and holds namespace {self.namespace} in Terminating" if self.namespace else ""
        lasts, _, why = self.problem.reason.partition(": ")
        return f"{lasts}{held}{f': {why}' if why else ''}"

    @property
    def words(self) -> str:
        """The reason with the remedy and its command."""
        return f"{ended(self.reason)} {sentence(typed(self.problem.remedy, self.problem.command))}"


def of_vm(vm: Object, cluster: Cluster) -> StuckVm | None:
    """Return why the deletion of a VM does not end; None: it is not being deleted for long,
    or nothing keeps it.
    """
    deleted = vm.metadata["deletionTimestamp"].text
    lasts = clock.since(deleted, cluster) if deleted else None
    held = finalizers(vm)
    usual = _USUAL + timedelta(seconds=_seconds(vms.vmi_spec(vm)))
    if lasts is None or not held or lasts < usual:
        return None
    begin = f"it is being deleted for {clock.duration(lasts)}, kept by finalizer {', '.join(held)}"
    found = next(_causes(vm, held, cluster), None)
    if found is None:
        see = f"see why the controller of {held[0]} does not remove it"
        found = Problem("", see, command=kubectl("describe", VM, vm.name, vm.namespace))
    space = find(cluster, NAMESPACE, "", vm.namespace)
    reason = f"{begin}: {found.reason}" if found.reason else begin
    return StuckVm(
        found._replace(reason=reason), vm.namespace if space is not None and space.deleted else ""
    )


def finalizers(obj: Object) -> list[str]:
    """Return the finalizers of an object."""
    return [text for each in obj.metadata["finalizers"].items() if (text := each.text)]


def _causes(vm: Object, held: list[str], cluster: Cluster) -> Iterator[Problem]:
    removed = removed_operators.kubevirt(cluster)
    if removed is not None:
        yield Problem(removed.of_vms.reason, removed.steps(60), command=removed.command)
    refused = vm_writes.refused_update(vm, cluster)
    if refused is not None:
        yield refused
    if _OF_SNAPSHOT in held:
        yield from _snapshot(vm, cluster)
    if OF_KUBEVIRT not in held:
        return
    vmi = find(cluster, VMI, vm.namespace, vm.name)
    if cluster.cached(_is_down):
        yield Problem(f"{_CONTROLLER} has no Ready pod", f"repair {_CONTROLLER}", command=_PODS)
    if vmi is not None:
        yield _instance(vmi)
    elif not unlisted(cluster, VMI):
        yield from _instance_type(vm, cluster)


def _is_down(cluster: Cluster) -> bool:
    """Return whether virt-controller certainly has no Ready pod, although it is installed."""
    pods = [pod for pod in cluster.known(POD) if pod.labels.get("kubevirt.io") == _CONTROLLER]
    if unlisted(cluster, POD) or any(pod.is_true("Ready") for pod in pods):
        return False
    return bool(pods) or any(each.name == _CONTROLLER for each in cluster.known(DEPLOYMENT))


_CONTROLLER: Final = "virt-controller"
_PODS: Final = f"kubectl get pods -A -l kubevirt.io={_CONTROLLER} -o wide"


def _snapshot(vm: Object, cluster: Cluster) -> Iterator[Problem]:
    name = vm.at("status", "snapshotInProgress").text
    snapshot = find(cluster, VM_SNAPSHOT, vm.namespace, name)
    if name:
        held = held_copies.quietly(snapshot, cluster) if snapshot is not None else None
        under_way = f"snapshot {name} of it is under way"
        if held is None:  # it may be a backup that only takes its time
            describe = kubectl("describe", VM_SNAPSHOT, name, vm.namespace)
            yield Problem(under_way, "let it end", command=describe)
            return
        delete = kubectl("delete", VM_SNAPSHOT, name, vm.namespace)
        remedy = "repair what keeps it, or delete it"
        yield Problem(f"{under_way} ({held.reason})", remedy, command=delete)


def _instance(vmi: Object) -> Problem:
    phase, node = vmi.at("status", "phase").text or "?", vmi.at("status", "nodeName").text
    where = f" on {node}" if node else ""
    kept = finalizers(vmi)
    by = f", kept by finalizer {', '.join(kept)}" if kept and vmi.deleted else ""
    see = shell("virt-admit", "explain", f"vm/{vmi.name}", "-n", vmi.namespace)
    return Problem(
        f"its VMI still exists ({phase}{where}{by})", f"see why the VMI does not end ({see})"
    )


def _instance_type(vm: Object, cluster: Cluster) -> Iterator[Problem]:
    """Yield that virt-api refuses the update because an instance type or a preference is gone."""
    release = versions.kubevirt_version(cluster)
    if release is None or not _LOOKED_UP[0] <= release < _LOOKED_UP[1]:
        return
    gone = list(_lost(vm, cluster))
    if not gone:
        return
    which = " and ".join(words for _, words in gone)
    exist = "no longer exists" if len(gone) == 1 else "no longer exist"
    refuses = f"virt-api of KubeVirt {release} refuses the update that removes the finalizer"
    reason = f"its {which} {exist}, and {refuses}"
    fields = " and ".join(str(path) for path, _ in gone)
    command = json_patch(VM, vm.name, vm.namespace, [Patch("remove", path) for path, _ in gone])
    yield Problem(
        reason, f"remove {fields} from the VM; KubeVirt 0.59.1 does not need that", command=command
    )


def _lost(vm: Object, cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield the field that names an instance type or a preference which does not exist,
    and its words.

    virt-api looks up the copy that the VM names, else what it is a copy of.
    """
    for key, word, kinds in (
        ("instancetype", "instance type", (INSTANCETYPE, CLUSTER_INSTANCETYPE)),
        ("preference", "preference", (PREFERENCE, CLUSTER_PREFERENCE)),
    ):
        named = vms.vm_spec(vm)[key]
        revision, name = named["revisionName"].text, named["name"].text
        own = (named["kind"].text or "").lower() in (kinds[0].kind.lower(), kinds[0].plural)
        kind = CONTROLLER_REVISION if revision else kinds[0 if own else 1]
        of = revision or name
        if of and is_absent(cluster, kind, vm.namespace, of):
            copy = f" (ControllerRevision {revision})" if revision else ""
            yield named.path, f"{word} {name or '?'}{copy}"


# --- namespaces -----------------------------------------------------------------------------------


def of_namespace(namespace: Object, cluster: Cluster) -> Problem | None:
    """Return what keeps a namespace in Terminating for long; None: nothing,
    or another finding says it.
    """
    deleted = namespace.metadata["deletionTimestamp"].text
    lasts = clock.since(deleted, cluster) if deleted else None
    graces = (_seconds(each["spec"]) for each in cluster.known(VMI, namespace.name))
    usual = _USUAL + timedelta(seconds=max(graces, default=0))
    if lasts is None or lasts < usual or api_discovery.failing(namespace, cluster):
        return None
    removed = removed_operators.kubevirt(cluster)
    if removed is not None and removed.obj.namespace == namespace.name:
        return None
    stuck = [vm for vm in cluster.known(VM, namespace.name) if of_vm(vm, cluster) is not None]
    said = [words for kind in _REMAINS if (words := _said(namespace, kind))]
    if stuck or not said:
        return None
    left = _LEFT.search(" ".join(said))
    get = shell("kubectl", "get", left[1], "-n", namespace.name, "-o", "yaml") if left else ""
    reason = (
        f"the namespace is Terminating for {clock.duration(lasts)}: "
        f"{cut_middle('; '.join(said), 300)}"
    )
    if _said(namespace, _REMAINS[0]):
        serve = "repair what serves this API, or delete its APIService if its product was removed"
        return Problem(reason, serve, command=shell("kubectl", "get", "apiservices"))
    see = "see which finalizers keep these objects, and repair their controllers"
    return Problem(
        reason, see, command=get or kubectl("get", NAMESPACE, namespace.name, "", "-o", "yaml")
    )


def _seconds(spec: Field) -> int:
    """Return how long a guest may take to shut down."""
    grace = spec["terminationGracePeriodSeconds"].integer
    return _GRACE if grace is None else clock.bounded(grace)


def _said(namespace: Object, kind: str) -> str:
    condition = namespace.condition(kind)
    return (
        (condition["message"].text or "").rstrip(".") if condition["status"].text == "True" else ""
    )


_REMAINS: Final = (
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
)
"""The conditions that say why a namespace stays, the cause before its effects."""
_LEFT: Final = re.compile(r"([a-z0-9.-]+) has \d+ resource instances")
