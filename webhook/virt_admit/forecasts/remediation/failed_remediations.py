"""Remediations that a health check has begun and that have failed for good: it makes another one
only after a change.

With ``remediationTemplate`` a NodeHealthCheck waits for its object without a limit; with
``escalatingRemediations`` it goes on to the next template, up to the last one. The operator of
fence agents runs none if it cannot use the parameters or read a Secret. Only its log says so: the
object stays at work without an end. Sources: medik8s/node-healthcheck-operator:internal/controller/
nodehealthcheck_controller.go#remediate (no time-out: nothing to do any more), #remediationFailed;
medik8s/fence-agents-remediation:pkg/utils/conditions.go#UpdateConditions (the agent runs only while
Processing is True), controllers/fenceagentsremediation_controller.go#Reconcile; metal3-io/
cluster-api-provider-metal3:controllers/metal3remediation_controller.go#reconcileNormal (Failed:
switched off on purpose), #remediateRebootStrategy (it waits without a limit until the host is off);
openshift/cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/actuator.go
#remediateIfNeeded (so does this); medik8s/self-node-remediation:internal/controller/
selfnoderemediation_controller.go#prepareReboot (no agent: not begun, without a condition).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from typing import Final

from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.forecasts.remediation.ends import left_power_offs
from virt_admit.model.commands import about, shell, typed
from virt_admit.model.evidence import status_errors
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import (
    BARE_METAL_HOST,
    FAR,
    FAR_TEMPLATE,
    MDR,
    METAL3_REMEDIATION,
    NHC,
    NODE,
    POD,
    SNR,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut_middle, names, without_command
from virt_admit.model.problems import Problem
from virt_admit.model.remediation import (
    bare_metal,
    fence_agents,
    fence_taints,
    health_checks,
    remediators,
)
from virt_admit.model.remediation.by_hand import hand_fences

_KINDS: Final[dict[str, Kind]] = {kind.kind: kind for kind in (FAR, SNR, MDR)}
_SAID: Final = (*WHOLE_CONDITIONS,)
_TEMPLATE: Final = "remediation.medik8s.io/template-name"
READS: Final[Reads] = union(
    clock.READS,
    remediation_agents.READS,
    left_power_offs.READS,
    hand_fences.READS,
    {
        NHC: (
            *("spec.escalatingRemediations", "spec.remediationTemplate.name"),
            "status.unhealthyNodes",
        ),
        FAR: ("spec", "metadata.creationTimestamp", f"metadata.annotations.{_TEMPLATE}", *_SAID),
        FAR_TEMPLATE: ("spec",),
        METAL3_REMEDIATION: ("status.phase",),
        SNR: ("status.lastError", "metadata.creationTimestamp", *_SAID),
        MDR: _SAID,
    },
)


def of_node(
    check: Object, node: str, cluster: Cluster, own: Object | None = None
) -> Problem | None:
    """Return how the remediation of a node by a health check has failed for good; None:
    nothing says that it has.

    ``own``: the Machine, if the check watches Machines. Its Metal3Remediation has the same name.
    """
    metal = (
        find(cluster, METAL3_REMEDIATION, own.namespace, own.name)
        if own is not None and own.namespace
        else None
    )
    if metal is not None and metal.at("status", "phase").text == "Failed" and not metal.deleted:
        return _switched_off(check, metal)
    if _by_power(check) and (host := _not_off(node, cluster)) is not None:
        return host
    found = [(each, _object(each, cluster)) for each in _begun(check, node)]
    ended = [
        obj
        for each, obj in found
        if each["timedOut"].present or _has_failed(obj) or _overdue(obj, cluster)
    ]
    steps = sum(1 for _ in check.at("spec", "escalatingRemediations").items())
    if not ended or len(ended) < max(1, steps):
        return None
    last = ended[-1]
    if not isinstance(last, Object) or not (_has_failed(last) or _overdue(last, cluster)):
        return None
    if last.kind == SNR.kind and not _has_failed(last):
        return _unarmed(node, last, cluster)
    return (
        _failed(check, node, last, cluster)
        if _has_failed(last)
        else _stuck(check, node, last, cluster)
    )


def unread(check: Object, node: str, cluster: Cluster) -> Iterator[str]:
    """Yield the remediations of a node that cannot be read, so that they may have failed."""
    for begun in _begun(check, node):
        if isinstance(found := _object(begun, cluster), Unseen):
            yield found.what


def of_any(node: str, cluster: Cluster) -> Problem | None:
    """Return how the remediation of a node by any NodeHealthCheck, or by the power of its host, has
    failed for good; None: nothing says so.
    """
    every = (of_node(check, node, cluster) for check in cluster.known(NHC))
    return next(filter(None, chain(every, (_not_off(node, cluster),))), None)


def completed(begun: Field, cluster: Cluster) -> Object | None:
    """Return the object of a remediation that has fenced its node and freed what was on it: the
    node boots again, and the object stays until the node is healthy; None: it has not.

    Source: medik8s/self-node-remediation:internal/controller/selfnoderemediation_controller.go
    #handleFencingCompletedPhase.
    """
    found = _object(begun, cluster)
    over = isinstance(found, Object) and found.kind in _FENCES and found.is_true("Succeeded")
    return found if isinstance(found, Object) and over and not found.deleted else None


_FENCES: Final = (SNR.kind, FAR.kind)


def _begun(check: Object, node: str) -> Iterator[Field]:
    return check.at("status", "unhealthyNodes").named(node)["remediations"].items()


def _object(begun: Field, cluster: Cluster) -> Object | Unseen | None:
    named = begun["resource"]
    kind = _KINDS.get(named["kind"].text or "")
    if kind is None:
        return None
    try:
        return cluster.get(kind, named["namespace"].text or "", named["name"].text or "")
    except Unseen as unseen:
        return unseen


def _has_failed(obj: Object | Unseen | None) -> bool:
    return (
        isinstance(obj, Object)
        and not obj.deleted
        and obj.condition("Succeeded")["status"].text == "False"
    )


_SETTLED: Final = timedelta(minutes=10)
"""For an operator that was on the node itself and starts elsewhere,
where it begins with its tries again.
"""


def _overdue(obj: Object | Unseen | None, cluster: Cluster) -> timedelta | None:
    """Return for how long a remediator is at work that has had the time for all its tries; None:
    it may end.
    """
    if isinstance(obj, Object) and obj.kind == SNR.kind:
        return _unable(obj, cluster)
    if not isinstance(obj, Object) or obj.kind != FAR.kind:
        return None
    if obj.deleted or obj.is_true("Succeeded"):
        return None
    processing = obj.condition("Processing")
    began = processing["lastTransitionTime"].text or obj.created
    lasts = clock.since(began, cluster)
    try:
        most = timedelta(seconds=clock.bounded(remediators.far_duration(obj) // SECOND))
    except ValueError:
        return lasts  # the operator cannot read it
    return lasts if lasts is not None and lasts > most + _SETTLED else None


_UNABLE: Final = "Node is not capable to reboot itself"


def _unable(obj: Object, cluster: Cluster) -> timedelta | None:
    """Return for how long Self Node Remediation has not begun, as the node has no agent for it;
    None: it has.

    It tries again without an end, and its other errors may pass (#prepareReboot).
    """
    if obj.deleted or obj.is_true("Succeeded") or obj.at("status", "lastError").text != _UNABLE:
        return None
    return clock.age(obj, cluster)


def _unarmed(node: str, obj: Object, cluster: Cluster) -> Problem:
    """Return what a lost node needs whose agent of Self Node Remediation never ran: people,
    and now.
    """
    lasts, gone = _overdue(obj, cluster), remediation_agents.missing(node, cluster)
    why = gone.why if gone is not None else "it finds no agent there that can"
    stands = "does not go on" if obj.is_true("Processing") else "has not begun"
    reason = (
        f"{obj.kind} {obj.full_name} {stands} for {duration(lasts or timedelta())} "
        f"({_UNABLE}): {why}"
    )
    taint = "As a decision, once it is confirmed to be off, taint it out-of-service"
    lacks = gone is not None and gone.daemon is not None
    short = f"{remediation_agents.WITHOUT} runs there" if lacks else why
    off = f"power {node} off by hand, as {short}"
    later = f"for the next time, {without_command(gone.remedy)}" if gone is not None else ""
    if not hand_fences.taint_works(cluster):
        then = capital(hand_fences.way(node, cluster))
        return Problem(reason, "; ".join(filter(None, (f"{off}. {then}", later))))
    taint = f"{taint}{hand_fences.unsure(cluster)}"
    return Problem(reason, typed(f"{off}. {taint}", fence_taints.fence_command(node), later))


def _stuck(check: Object, node: str, obj: Object, cluster: Cluster) -> Problem:
    title, lasts = f"{obj.kind} {obj.full_name}", _overdue(obj, cluster)
    try:
        because = fence_agents.refusal(obj, node)
    except Unseen:
        because = ""
    why = because.removeprefix(title) or " only the log of its operator says why"
    reason = f"{title} has not ended its fence agent for {duration(lasts or timedelta())}, and{why}"
    own = f"correct the template of {title} (it{because.removeprefix(title)})"
    first = own if because else f"see the log of the operator of {title}, which runs no agent"
    way = f"{first}, then delete that {obj.kind}, which {check.kind} {check.name} makes again"
    return Problem(reason, typed(way, about("delete", obj, FAR)))


def _failed(check: Object, node: str, obj: Object, cluster: Cluster) -> Problem:
    said, title = obj.condition("Succeeded"), f"{obj.kind} {obj.full_name}"
    age = clock.since(said["lastTransitionTime"].text, cluster)
    ago = f" {duration(age)} ago" if age is not None else ""
    parts = [part for part in (said["reason"].text, said["message"].text) if part]
    if obj.kind == FAR.kind:  # its message says no more (pkg/utils/conditions.go)
        del parts[1:]
    words = ": ".join(cut_middle(part, 120) for part in parts)
    reason = f"{title} has failed{ago}{f' ({words})' if words else ''}, and it is not tried again"
    if obj.kind == FAR.kind:
        return _of_agent(check, node, obj, reason, cluster)
    again = f"which {check.kind} {check.name} makes again"
    way = f"once {node} can be remediated, delete its failed {obj.kind}, {again}"
    return Problem(reason, typed(way, about("delete", obj, _KINDS[obj.kind])))


def _switched_off(check: Object, obj: Object) -> Problem:
    reason = (
        f"{obj.kind} {obj.full_name} has failed, as spec.online of its BareMetalHost is false, and "
        "it is not tried again"
    )
    way = f"set spec.online of that BareMetalHost to true, then delete its failed {obj.kind}"
    return Problem(
        reason,
        typed(
            f"{way}, which {check.kind} {check.name} makes again",
            about("delete", obj, METAL3_REMEDIATION),
        ),
    )


def doubts(check: Object, node: str, cluster: Cluster) -> Iterator[str]:
    """Yield what a check that remediates by the power of hosts may not be able to do.

    The operator tries a call to a BMC again, so an error of now may be over by then
    (metal3-io/baremetal-operator:internal/controller/metal3.io/action_result.go#actionFailed).
    """
    host = bare_metal.host_of(node, cluster) if _by_power(check) else None
    if host is not None and (error := _power_error(host)) and not bare_metal.is_asked_off(host):
        yield f"whether {host.kind} {host.full_name} can be powered off: its BMC reports {error}"


def _by_power(check: Object) -> bool:
    view = health_checks.view(check)
    return view.external or (view.template["kind"].text or "").startswith("Metal3")


def _power_error(host: Object) -> str:
    error, said = bare_metal.power_error(host), host.at("status", "errorMessage").text or ""
    said = status_errors.plain(said).rstrip(".")
    return f"{error} ({cut_middle(said, 100)})" if error and said else error


def _not_off(node: str, cluster: Cluster) -> Problem | None:
    """Return that the host of a node cannot be powered off, which its remediation has asked for;
    None: nothing says so.
    """
    host = bare_metal.host_of(node, cluster)
    error = _power_error(host) if host is not None else ""
    if host is None or not error or not bare_metal.is_asked_off(host):
        return None
    if (left := left_power_offs.of_node(node, cluster)) is not None:
        return Problem(left.reason, left.remedy)
    title, bmc = f"{host.kind} {host.full_name}", host.at("spec", "bmc")
    secret = f" or Secret {bmc['credentialsName'].text}" if bmc["credentialsName"].text else ""
    address = status_errors.plain(bmc["address"].text or "no address")
    first = f"restore the BMC of {node} ({address}), or correct its address{secret} in {title}"
    obj = find(cluster, NODE, "", node)
    if obj is not None and obj.is_true("Ready"):
        first = f"{first}, which then powers off the running node with its VMs"
    other = hand_fences.otherwise(node, cluster)
    return Problem(
        f"{title} is asked to power off, and is not confirmed to be off: {error}",
        typed(first, about("describe", host, BARE_METAL_HOST), other),
    )


# --- fence agents ---------------------------------------------------------------------------------


def _of_agent(check: Object, node: str, obj: Object, reason: str, cluster: Cluster) -> Problem:
    """Return what to correct after an agent has failed: nothing of the cluster says why, but its
    operator logs what the agent has answered. Another object gets the same parameters.
    """
    name = obj.annotation(_TEMPLATE).text or check.at("spec", "remediationTemplate", "name").text
    template = find(cluster, FAR_TEMPLATE, obj.namespace, name)
    because = _fault(obj, node)
    delete = about("delete", obj, FAR)
    again = f"delete the failed {FAR.kind}, which {check.kind} {check.name} makes again"
    if because:
        reason = f"{reason}: it {because}"
    if template is None:
        first = f"correct its template{f' {name}' if name else ''}, then {again}"
        return Problem(reason, typed(first, delete))
    called, edit = f"{template.kind} {template.full_name}", about("edit", template, FAR_TEMPLATE)
    if because and not _fault(template, node):
        return Problem(reason, typed(f"{again} from {called}, corrected by now", delete))
    then = f"then {again} from it ({delete})"
    if because:
        return Problem(reason, typed(fence_agents.remedy(template, node), edit, then))
    if obj.condition("Succeeded")["reason"].text == _INTERRUPTED:
        first = (
            f"see in the log of its operator how far {_agent_of(obj)} came, and give its step in "
            f"{check.kind} {check.name} more time, or {called} fewer tries"
        )
        return Problem(reason, typed(first, _log(cluster), then))
    given = names(fence_agents.parameters(template, node), 90)
    first = (
        f"see in the log of its operator what {_agent_of(obj)} "
        f"answered, and correct {template.kind} {template.name}, or what its parameters name"
    )
    then = f"they are {given}; {then}"
    return Problem(reason, typed(first, _log(cluster), then))


_INTERRUPTED: Final = "RemediationInterruptedByNHC"
"""The time of the step was over, while the agent may still have tried (conditions.go)."""


def _agent_of(obj: Object) -> str:
    return obj.at("spec", "agent").text or "the agent"


def _fault(obj: Object, node: str) -> str:
    """Return what of a template, or of an object made from it, keeps its agent from a node, or may
    do so where a Secret is not read; empty: nothing is seen.
    """
    try:
        return fence_agents.refusal(obj, node).removeprefix(f"{obj.kind} {obj.full_name} ")
    except Unseen:
        gaps = names(str(field.path[-1]) for field, _ in remediators.far_gaps(obj, [node]))
        return f"has no {gaps} for {node}, unlike other nodes" if gaps else ""


def _log(cluster: Cluster) -> str:
    """Return the command that shows the log of the operator of fence agents; empty: no pod of it is
    known.
    """
    pods = (each for each in cluster.known(POD) if each.name.startswith(_OPERATOR))
    found = next(pods, None)
    name = found.label(_OF_OPERATOR).text if found is not None else None
    if found is None or not name:
        return ""
    label = f"{_OF_OPERATOR}={name}"
    return shell(
        *("kubectl", "logs", "-n", found.namespace, "-l", label, "-c", "manager", "--tail=-1")
    )


_OPERATOR: Final = "fence-agents-remediation-controller-manager-"
_OF_OPERATOR: Final = "app.kubernetes.io/name"
