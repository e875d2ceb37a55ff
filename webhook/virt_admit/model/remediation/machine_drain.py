"""How long Cluster API drains the node of a Machine that is being deleted,
and what it waits for afterwards.

Sources: kubernetes-sigs/cluster-api: core/reconcilers/machine/machine_controller.go#reconcileDelete
#nodeDrainTimeoutExceeded #shouldWaitForNodeVolumes;
api/core/v1beta2/machine_types.go#MachineDeletionStatus; openshift/machine-api-operator:
pkg/controller/machine/controller.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock, kinds, selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    MACHINE,
    MACHINE_DRAIN_RULE,
    NAMESPACE,
    POD,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import SECOND, parse_duration
from virt_admit.model.lookups import find
from virt_admit.model.messages import count, cut_middle

WAIT_LABEL: Final = "cluster.x-k8s.io/drain"
"""The label of a pod that Cluster API does not evict
(api/core/v1beta2/machinedrainrules_types.go#PodDrainLabel).
"""

_TERMINATING: Final = "waitForPreTerminateHookStartTime"

DELETED_READS: Final[Reads] = union(
    machine_nodes.READS,
    {
        CAPI_MACHINE: (
            "metadata.annotations",
            "metadata.deletionTimestamp",
            "status.deletion.nodeDrainStartTime",
            "status.conditions",
            "status.v1beta2.conditions",
        ),
        MACHINE: ("metadata.deletionTimestamp", "spec.lifecycleHooks", "status.conditions"),
    },
)
"""The fields that ``deleted_of``, ``is_drained`` and ``reported`` read."""
READS: Final[Reads] = union(
    DELETED_READS,
    {
        CAPI_MACHINE: (
            "spec.deletion",
            "spec.nodeDrainTimeout",
            "spec.nodeVolumeDetachTimeout",
            "status.deletion.waitForNodeVolumeDetachStartTime",
            f"status.deletion.{_TERMINATING}",
            "metadata.labels",
        ),
        MACHINE_DRAIN_RULE: (),
        NAMESPACE: ("metadata.labels",),
        CAPI_CLUSTER: ("metadata.labels",),
        POD: ("metadata.labels", "status.phase", "status.conditions.lastTransitionTime"),
    },
)

_PRE_DRAIN: Final = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
"""The annotation of a Machine whose drain waits, alone or with ``/NAME``
(common_types.go#PreDrainDeleteHookAnnotationPrefix). Its value names the owner.
"""


_PRE_TERMINATE: Final = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"
"""The same of a Machine whose infrastructure is not deleted
(#PreTerminateDeleteHookAnnotationPrefix).
"""


def holding_hooks(machine: Object) -> tuple[str, ...]:
    """Return the pre-drain hooks that a Machine waits for now; empty: none,
    or it is not being deleted.
    """
    return tuple(pre_drain_hooks(machine)) if machine.deleted else ()


def pre_drain_hooks(machine: Object) -> Iterator[str]:
    """Yield what a Machine waits for once it is deleted, before its node is drained,
    as ``NAME of OWNER``.

    No time-out ends that wait: of Cluster API (machine_controller.go#reconcileDelete) and of
    OpenShift (machine-api-operator: pkg/controller/machine/drain_controller.go).
    """
    return _hooks(machine, _PRE_DRAIN, "preDrain")


def terminating_hooks(machine: Object) -> tuple[str, ...]:
    """Return the hooks that a Machine waits for now, after its node was drained.

    No time-out ends that wait either.
    """
    if machine.deleted and is_drained(machine):
        return tuple(_hooks(machine, _PRE_TERMINATE, "preTerminate"))
    return ()


def is_held_up(machine: Object) -> bool:
    """Return whether the deletion of a Machine has a hook, or meets pods that are not evicted."""
    hooks = (*pre_drain_hooks(machine), *_hooks(machine, _PRE_TERMINATE, "preTerminate"))
    failed = machine.condition("DrainingSucceeded")["reason"].text == "DrainingFailed"
    return bool(hooks) or failed or "annot evict pod" in reported(machine)[0]


def _hooks(machine: Object, prefix: str, field: str) -> Iterator[str]:
    if kinds.of(machine) is CAPI_MACHINE:
        hooks = [
            (key, value) for key, value in machine.annotations.items() if key.startswith(prefix)
        ]
        found = [(key.removeprefix(prefix).lstrip("/"), value) for key, value in sorted(hooks)]
    else:
        listed = machine.at("spec", "lifecycleHooks", field).items()
        found = [(hook["name"].text or "", hook["owner"].text or "") for hook in listed]
    for name, owner in found:
        yield f"{name or 'without a name'} of {owner}" if owner else name or "without a name"


_DRAINED: Final = frozenset(
    (
        "WaitingForPreTerminateHook",
        "WaitingForInfrastructureDeletion",
        "WaitingForBootstrapDeletion",
        "DeletingNode",
        "DeletionCompleted",
    )
)
"""Reasons of the condition Deleting after the drain. With another one, such as InternalError,
it may not have ended.
"""
STEPS: Final = ("PreDrainDeleteHookSucceeded", "DrainingSucceeded", "VolumeDetachSucceeded")
"""The conditions of API version v1beta1 for the steps of a deletion that end with an empty node,
in their order.
"""


def is_drained(machine: Object) -> bool:
    """Return whether the node of a Machine that is being deleted was drained,
    and its volumes are detached.
    """
    if kinds.of(machine) is not CAPI_MACHINE:
        return machine.is_true("Drained")
    deleting = condition(machine, "Deleting")
    if deleting.present:
        return deleting["reason"].text in _DRAINED
    said = [machine.condition(step)["status"].text for step in STEPS]
    return "False" not in said and said[1] == "True"


def is_over(machine: Object) -> bool:
    """Return whether the drain of a Machine that is being deleted has ended, though its volumes may
    be attached yet.
    """
    return is_drained(machine) or volume_wait(machine) is not None


def is_left_to_machine(node: str, cluster: Cluster) -> bool:
    """Return whether a node is left to its Machine, which is being deleted and has drained it or
    waits for a hook before.
    """
    return any(is_drained(each) or holding_hooks(each) for each in deleted_of(node, cluster))


def deleted_of(node: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the Machines of a node that are being deleted, so that the node goes with them."""
    machines = (
        each for kind in (CAPI_MACHINE, MACHINE) for each in cluster.known(kind) if each.deleted
    )
    yield from (each for each in machines if machine_nodes.emptied_node(each, cluster) == node)


def cordons_again(machine: Object) -> bool:
    """Return whether Cluster API certainly cordons the node of a Machine that is being deleted at
    each look.

    It does not while a hook holds the drain, once a time-out is over, and in newer releases once it
    has written when the wait for the last hooks began (machine_controller.go#isNodeDrainAllowed).
    """
    spared = (
        _NOT_DRAINED in machine.annotations
        or bool(holding_hooks(machine))
        or timeout(machine) is not None
    )
    return (
        machine.deleted
        and not spared
        and not machine.at("status", "deletion", _TERMINATING).present
    )


_NOT_DRAINED: Final = "machine.cluster.x-k8s.io/exclude-node-draining"


def terminate_wait(machine: Object) -> str | None:
    """Return since when a Machine waits for its hooks after the drain; None: not known."""
    said = (condition(machine, "PreTerminateDeleteHookSucceeded"), condition(machine, "Terminable"))
    return next(
        (each["lastTransitionTime"].text for each in said if each["status"].text == "False"), None
    )


def condition(obj: Object, kind: str) -> Field:
    """Return a condition of API version v1beta2, which v1beta1 has in a place of its own."""
    found = obj.condition(kind)
    if found.present:
        return found
    later = obj.at("status", "v1beta2", "conditions").items()
    return next((each for each in later if each["type"].text == kind), Field(None))


JUDGED: Final = "HealthCheckSucceeded"
"""The condition in which a health check of Cluster API writes what it thinks of a Machine."""
_OF_NODE: Final = ("NodeHealthy", "NodeReady")


def recovered(machine: Object) -> datetime | None:
    """Return since when the node of a Machine is healthy that a check judged unhealthy before;
    None: it is not, or nothing judged it so.
    """
    verdict = condition(machine, JUDGED)
    judged = clock.instant(verdict["lastTransitionTime"].text)
    said = [condition(machine, kind) for kind in _OF_NODE]
    known = [each for each in said if each.present]
    if verdict["status"].text != "False" or judged is None or not known:
        return None
    times = [clock.instant(each["lastTransitionTime"].text) for each in known]
    since = max((each for each in times if each is not None), default=judged)
    is_healthy = all(each["status"].text == "True" for each in known)
    return since if is_healthy and since > judged else None


def timeout(machine: Object) -> int | None:
    """Return after how many seconds Cluster API ends the drain; None: never, as on OpenShift."""
    return _seconds(machine, "nodeDrainTimeout")


def no_timeout(machine: Object, field: str = "nodeDrainTimeout") -> str:
    """Return why a step of the deletion of a Machine has no limit, as a clause: 0 means none too
    (machine_controller.go#nodeDrainTimeoutExceeded #nodeVolumeDetachTimeoutExceeded).
    """
    newer = machine.at("spec", "deletion", f"{field}Seconds")
    found = newer if newer.present else machine.at("spec", field)
    return (
        f"{found.path[-1]} {found.value} means no limit" if found.present else f"{field} is not set"
    )


def detach_timeout(machine: Object) -> int | None:
    """Return for how many seconds it waits then until volumes are detached; None: without limit."""
    return _seconds(machine, "nodeVolumeDetachTimeout")


def volume_wait(machine: Object) -> str | None:
    """Return since when the deletion of a Machine waits for volumes to be detached; None:
    it does not.
    """
    if condition(machine, "Deleting")["reason"].text == "WaitingForVolumeDetach":
        return machine.at("status", "deletion", "waitForNodeVolumeDetachStartTime").text
    older = machine.condition("VolumeDetachSucceeded")
    return older["lastTransitionTime"].text if older["status"].text == "False" else None


def reported(machine: Object) -> tuple[str, datetime | None]:
    """Return what the drain of a Machine waits for in the words of its controller, and since when;
    empty: it does not say.

    It names up to three pods for each cause, each cause on a line with a bullet
    (core/reconcilers/machine/drain/drain.go#ConditionMessage).
    """
    said = [condition(machine, "Deleting"), machine.condition("DrainingSucceeded")]
    if not machine.deleted or is_drained(machine) or holding_hooks(machine):
        return "", None
    found = next(
        (each for each in said if each["reason"].text in _DRAINING and each["message"].text), None
    )
    if found is None:
        return "", None
    began = clock.instant(machine.at("status", "deletion", "nodeDrainStartTime").text)
    words = found["message"].words
    return _BEGUN.sub("", words), began or clock.instant(found["lastTransitionTime"].text)


_DRAINING: Final = ("DrainingNode", "Draining", "DrainingFailed")
_BEGUN: Final = re.compile(r"^Drain not completed yet \(started at [^)]*\): (?:\* )?")
_POD: Final = re.compile(r"\b[a-z0-9][a-z0-9-]*/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


def brief(words: str, length: int) -> str:
    """Shorten such words: the first cause and how many more, as a cut must not join the begin of
    one with the end of another.
    """
    first, *more = (each.strip() for each in _BULLET.split(words.rstrip(".")))
    if len(words) <= length or not more:
        return cut_middle(first if not more else words.rstrip("."), length)
    return f"{cut_middle(first, length)}; and {count(len(more), 'more cause')}"


_BULLET: Final = re.compile(r"(?<=\S)\s+\* ")


def reported_pods(words: str) -> list[str]:
    """Return the pods that such words name as those that stay now, as ``namespace/name``."""
    return _POD.findall(words.partition("After above Pods have been removed")[0])


class Spared(NamedTuple):
    """Why Cluster API does not evict a pod."""

    waits: bool
    """Whether it waits until the pod has completed and is deleted. False:
    it leaves the pod to the end of the node.
    """
    why: str
    """``label cluster.x-k8s.io/drain=skip`` or ``MachineDrainRule fleet/batch``."""


def spared(pod: Object, machine: Object, cluster: Cluster) -> Spared | None:
    """Return why a drain by Cluster API does not evict a pod; None: it does.

    The label of the pod decides, else the first rule by its name (filters.go#drainLabelFilter
    #machineDrainRulesFilter).
    """
    value = pod.labels.get(WAIT_LABEL, "")
    waits = value.replace("-", "", 1).lower() == _WAIT
    if waits or value.lower() == _SKIP:
        return Spared(waits, f"label {WAIT_LABEL}={value}")
    rules = sorted(cluster.known(MACHINE_DRAIN_RULE), key=lambda rule: rule.name)
    own = (
        rule
        for rule in rules
        if rule.namespace == machine.namespace and _is_of(rule, machine, cluster)
    )
    first = next((rule for rule in own if _selects(rule, pod, cluster)), None)
    behavior = (
        (first.at("spec", "drain", "behavior").text or "").lower() if first is not None else ""
    )
    if first is None or behavior not in (_SKIP, _WAIT):
        return None
    return Spared(behavior == _WAIT, f"MachineDrainRule {first.full_name}")


_SKIP, _WAIT = "skip", "waitcompleted"


def _is_of(rule: Object, machine: Object, cluster: Cluster) -> bool:
    owner = find(cluster, CAPI_CLUSTER, machine.namespace, machine.at("spec", "clusterName").text)
    labels = owner.labels if owner is not None else {}
    entries = list(rule.at("spec", "machines").items())
    return not entries or any(
        _matches(each["selector"], machine.labels) and _matches(each["clusterSelector"], labels)
        for each in entries
    )


def _selects(rule: Object, pod: Object, cluster: Cluster) -> bool:
    space = find(cluster, NAMESPACE, "", pod.namespace)
    labels = space.labels if space is not None else {}
    entries = list(rule.at("spec", "pods").items())
    return not entries or any(
        _matches(each["selector"], pod.labels) and _matches(each["namespaceSelector"], labels)
        for each in entries
    )


def _matches(selector: Field, labels: Mapping[str, str]) -> bool:
    return selectors.parse(selector.value).matches(labels)


def ends(machine: Object) -> datetime | None:
    """Return when the drain of the node of a Machine ends although VMs are left; None: never,
    or not known.

    It has not begun while a hook holds it.
    """
    limit = None if holding_hooks(machine) else timeout(machine)
    started = clock.instant(machine.at("status", "deletion", "nodeDrainStartTime").text)
    began = started or clock.instant(machine.metadata["deletionTimestamp"].text)
    try:
        return began + timedelta(seconds=limit) if began is not None and limit is not None else None
    except OverflowError:
        return None


def _seconds(machine: Object, field: str) -> int | None:
    return seconds_of(machine["spec"], field) if kinds.of(machine) is CAPI_MACHINE else None


def seconds_of(spec: Field, field: str) -> int | None:
    """Return the seconds of a time-out in the spec of a Machine or a template; None: no limit."""
    newer = spec.at("deletion", f"{field}Seconds").integer
    if newer is not None:
        return newer if newer > 0 else None
    try:
        older = parse_duration(spec[field].value) // SECOND
    except ValueError:
        return None
    return older if older > 0 else None
