"""Requests to power a host off that a health check of OpenShift has left on a node that is Ready
again.

MachineHealthCheck never takes its annotation of a Machine back. The actuator of bare metal asks for
the power-off again while that annotation is there, and waits until the host is off. If the BMC does
not answer, the request is carried out as soon as it does: the running node is powered off. Sources:
openshift/machine-api-operator:pkg/controller/machinehealthcheck/
machinehealthcheck_controller.go#remediationStrategyExternal, openshift/
cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/actuator.go
#remediateIfNeeded; pull requests openshift/machine-api-operator#891 and
openshift/cluster-api-provider-baremetal#157.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import remediation_steps, unhealthy_objects
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, and_then, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import BARE_METAL_HOST, MACHINE, MHC, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import sentence
from virt_admit.model.remediation import bare_metal, health_checks

POWER_OFF: Final = "reboot.metal3.io/capbm-requested-power-off"
"""The annotation of a host that its Machine's actuator writes (actuator.go
#requestPowerOffAnnotation)."""
_IS_OFF: Final = "remediation.metal3.io/powered-off-for-remediation"
"""The annotation of a Machine whose host was off: the node that is Ready is the new one, and the
actuator is about to end the remediation."""
_ASKED: Final = unhealthy_objects.EXTERNAL_REMEDIATION
_SETTLED: Final = timedelta(minutes=5)
"""A BMC that answers has powered its host off by then."""
READS: Final[Reads] = union(
    node_health.READS,
    bare_metal.POWER_READS,
    {
        MACHINE: tuple(f"metadata.annotations.{key}" for key in (_ASKED, _IS_OFF)),
        MHC: ("spec.selector", "spec.unhealthyConditions"),
        NODE: WHOLE_CONDITIONS,
    },
)


class LeftPowerOff(NamedTuple):
    """A host that is asked to power off although its node is Ready again."""

    host: Object
    node: str
    reason: str
    remedy: str
    """What takes the request away, before the BMC is restored."""
    brief: str
    """Reason and remedy in as few words as a finding about the host has."""

    @property
    def note(self) -> str:
        """What is said of it beside a drain of its node."""
        return f"{sentence(self.reason)} {sentence(self.remedy)}"


def of_node(node: str, cluster: Cluster) -> LeftPowerOff | None:
    """Return the request that was left on the host of a node; None: none is known to be."""
    host = bare_metal.host_of(node, cluster)
    return of_host(host, cluster) if host is not None else None


def notes(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that a request was left on the host of a node, beside a drain of it."""
    if (left := of_node(node.name, cluster)) is not None:
        yield left.note


def of_host(host: Object, cluster: Cluster) -> LeftPowerOff | None:
    """Return the request that was left on a host; None: its node may be unhealthy, or none is."""
    consumer = host.at("spec", "consumerRef")
    space = consumer["namespace"].text or host.namespace
    machine = find(cluster, MACHINE, space, consumer["name"].text)
    name = machine_nodes.node_name(machine, cluster) if machine is not None else ""
    node = find(cluster, NODE, "", name)
    if machine is None or node is None or machine.annotation(_IS_OFF).present or machine.deleted:
        return None
    marked = [each for each in ((machine, _ASKED), (host, POWER_OFF)) if _has(*each)]
    is_off = host.at("status", "poweredOn").boolean is False
    lasts = clock.since(node.condition("Ready")["lastTransitionTime"].text, cluster)
    settled = lasts is not None and lasts >= _SETTLED
    if not marked or is_off or not settled or not _is_healthy(node, cluster):
        return None
    error, since = bare_metal.power_error(host), clock.duration(lasts or timedelta())
    keys = " and ".join(f"{key} of {obj.kind} {obj.name}" for obj, key in marked)
    answers = "once its BMC answers again"
    when = f"{answers} ({error})" if error else "at any time"
    off = "the running node is powered off with its VMs"
    reason = (
        f"node {name} is Ready for {since}, but its host is still asked to power off "
        f"(annotation {keys}): {when}, {off}"
    )
    steps = ", then ".join(f"{key} off {obj.kind} {obj.name}" for obj, key in marked)
    last = ", only then restore the BMC" if error else ""
    brief = (
        f"its node {name} is Ready for {since}, but it is still asked to power off: "
        f"{answers if error else when}, {off}. First take annotation {steps}{last}."
    )
    return LeftPowerOff(host, name, reason, _remedy(marked, error), brief)


def _has(obj: Object, key: str) -> bool:
    return obj.annotation(key).present


def _is_healthy(node: Object, cluster: Cluster) -> bool:
    """Return whether no MachineHealthCheck can have a reason now to remediate a node."""
    if not node.is_true("Ready") or node_health.silent_for(node.name, cluster):
        return False
    if unlisted(cluster, MHC):
        return False
    conditions = list(node.at("status", "conditions").items())
    return not any(
        unhealthy_objects.matching(conditions, remediation_steps.symptoms(health_checks.view(each)))
        for each in cluster.known(MHC)
    )


def _remedy(marked: Sequence[tuple[Object, str]], error: str) -> str:
    """Return what takes the request away: of the Machine first, which would have it again."""
    remedy = ""
    for obj, key in marked:
        kind = MACHINE if obj.kind == MACHINE.kind else BARE_METAL_HOST
        command = about("annotate", obj, kind, f"{key}-")
        words = f"take the annotation {key} off {kind.kind} {obj.name}"
        remedy = and_then(remedy, words, command) if remedy else typed(words, command)
    return f"{remedy}; only then restore the BMC" if error else remedy
