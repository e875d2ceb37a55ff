"""Guests that run and whose readiness probe does not succeed: their VMI is Running and not Ready.

The kubelet of the node asks, from the address of the node. With masquerade the guest has an address
of its own network, by default 10.0.2.0/24. A node with an address in that network is on its own
link for the guest, so no answer leaves it. Sources:
kubevirt/kubevirt:pkg/virt-launcher/virtwrap/api/defaults.go#DefaultVMCIDR,
:pkg/virt-controller/watch/vmi/lifecycle.go#syncReadyConditionFromPod;
kubernetes/kubernetes:pkg/kubelet/status/generate.go#ContainersNotReady;
issue harvester/harvester#10352.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.guests import guest_screens, restart_guard
from virt_admit.forecasts.placement import running_launchers
from virt_admit.model.commands import kubectl, typed, virtctl
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.kubernetes import clock, events, nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD, VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, count, cut_middle
from virt_admit.model.problems import Problem
from virt_admit.model.sanitize import without_login

READS: Final[Reads] = union(
    clock.READS,
    guest_screens.READS,
    restart_guard.READS,
    {
        NODE: ("status.addresses", *CONDITIONS),
        POD: ("metadata.labels", "metadata.ownerReferences", "spec.nodeName", "status.phase"),
        VMI: (
            *("spec", "metadata.ownerReferences", "status.nodeName", "status.phase"),
            *("status.phaseTransitionTimestamps", *CONDITIONS),
        ),
    },
)
_PATIENCE: Final = timedelta(minutes=15)
"""A guest has started what its probe asks for by then."""
_RECENT: Final = timedelta(minutes=30)
_NOT_READY: Final = "ContainersNotReady"
_DEFAULT: Final = "10.0.2.0/24"
_ASKED: Final = ("httpGet", "tcpSocket")
"""The probes that come over the network."""
_INSIDE: Final = ("exec", "guestAgentPing")
"""The probes that the guest answers through its agent."""
_LONGEST: Final = 160


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that the readiness probe of a guest has not succeeded for long; None: it has none,
    it is ready, it has just started, or its node does not report.
    """
    probe, ready = vmi.at("spec", "readinessProbe"), vmi.condition("Ready")
    name = vmi.at("status", "nodeName").text
    node = find(cluster, NODE, "", name)
    if vmi.deleted or not (probe.is_map and vmis.running(vmi)) or node is None:
        return None
    if ready["status"].text != "False" or ready["reason"].text != _NOT_READY:
        return None
    times = (_started(vmi), ready["lastTransitionTime"].text)
    since = [found for each in times if (found := clock.instant(each)) is not None]
    lasts = clock.elapsed(max(since), cluster) if since else None
    delay = probe["initialDelaySeconds"].integer or 0
    first = timedelta(seconds=max(0, min(delay, _MOST)))
    if lasts is None or lasts < _PATIENCE + first or not node.is_true("Ready"):
        return None
    reason = (
        f"it runs and is not ready: its readiness probe{_address(probe)} has not succeeded for "
        f"{clock.duration(lasts)}{_answer(vmi, probe, cluster)}"
    )
    network = next(_networks(vmi, node), "") if any(probe[each].is_map for each in _ASKED) else ""
    if not network:
        look = guest_screens.command(vmi)
        return Problem(reason, typed("see in its guest why what its probe asks for fails", look))
    return Problem(f"{reason}. Probably {network}", _remedy(vmi, cluster))


_MOST: Final = 86_400


def notes(cluster: Cluster) -> Iterator[ReportedProblem]:
    """Yield the guests whose readiness probe has not succeeded for long."""
    for vmi in sorted(cluster.known(VMI), key=lambda each: each.full_name):
        if (found := problem(vmi, cluster)) is not None:
            text = f"{found.reason}. {capital(found.remedy)}"
            yield ReportedProblem(VMI.kind, vms.namespace_of(vmi), vmi.name, text, None)


def _started(vmi: Object) -> str | None:
    phases = vmi.at("status", "phaseTransitionTimestamps").items()
    own = (each for each in phases if each["phase"].text == "Running")
    return next((each["phaseTransitionTimestamp"].text for each in own), None)


def _address(probe: Field) -> str:
    """Return what a probe asks for, as an insertion."""
    asked = next((probe[each] for each in _ASKED if probe[each].is_map), None)
    if asked is None:
        return ""
    number = asked["port"].integer
    port = str(number) if number is not None else asked["port"].text or ""
    path = cut_middle(_public(asked["path"].text or "").partition('"')[0], _LONGEST)
    return f" (port {port}{f', {path}' if path else ''})" if _PORT.fullmatch(port) else ""


_PORT: Final = re.compile(r"[A-Za-z0-9-]{1,15}")
"""A number, or the name of a service (RFC 6335)."""
_QUERY: Final = re.compile(r"(?:[?#]|%3f|%23)(?:\\.|[^\"\\])*", re.IGNORECASE)
"""The query of an address, up to the quotation mark after it: its values may be keys."""


def _public(text: str) -> str:
    """Return an address, or a text with one in quotation marks, without its login and query."""
    return _QUERY.sub("", without_login(text))


def _answer(vmi: Object, probe: Field, cluster: Cluster) -> str:
    """Return how often the probe failed, and how, as an insertion; empty: no event says it.

    What a command or the agent of a guest prints is content of the guest, and is not quoted.
    """
    pod = running_launchers.launchers(cluster).on_node(vmi)
    known = events.about(pod, clock.ago(_RECENT, cluster), cluster) if pod is not None else ()
    inside = any(probe[each].present for each in _INSIDE)
    for event in known:
        said = _public(events.probe_answer(event["reason"].text or "", events.message(event)))
        if said:
            times = events.times_of(event)
            how = "" if inside else f": {cut_middle(said, _LONGEST)}"
            return f" ({count(times, 'failure')}{how})"
    return ""


def _networks(vmi: Object, node: Object) -> Iterator[str]:
    """Yield the networks of a guest in which its own node has an address."""
    pods = {each["name"].text: each["pod"] for each in vmi.at("spec", "networks").items()}
    for interface in vmi.at("spec", "domain", "devices", "interfaces").items():
        pod = pods.get(interface["name"].text)
        if pod is None or not (pod.is_map and interface["masquerade"].is_map):
            continue
        own = pod["vmNetworkCIDR"].text
        for address in nodes.internal_addresses(node):
            if nodes.lies_in(address, own or _DEFAULT):
                default = "" if own else ", the default of KubeVirt"
                yield (
                    f"because {address} of node {node.name}, which asks, is in the network of its "
                    f"masquerade interface {interface['name'].text} ({own or _DEFAULT}{default}), "
                    "so its guest looks for it on its own link"
                )


def _remedy(vmi: Object, cluster: Cluster) -> str:
    words = "give its pod network a vmNetworkCIDR in which no node has an address"
    name, namespace = vmis.owner(vmi, VM.kind), vms.namespace_of(vmi)
    if name is None:
        shown = kubectl("get", VMI, vmi.name, namespace, "-o", "yaml")
        return typed(f"{words}, in what makes this VMI, and then make it again", shown)
    later = restart_guard.later(vmi, cluster)
    restart = f"then restart it ({virtctl('restart', name, namespace)}){later}"
    return typed(words, kubectl("edit", VM, name, namespace), restart)
