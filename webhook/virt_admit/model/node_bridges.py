"""Bridges that a VM needs on its node, which their markers offer as resources,
and why other nodes do not have them.

kubernetes-nmstate changes the nodes of a policy in turn, and counts those that it changes in the
status of the policy. The count is never corrected if a handler is ended, or its node removed, while
it changes that node: the other nodes wait then without an end. Its handlers of releases after 0.86
reset the count when they start. A policy whose nodes wait refuses a change of its spec. A node on
which it failed keeps its place. A machine that was replaced may have network cards of other names
than the ports of the policy. Names that the policy makes itself, and those that it finds by an
address or an expression, are no such ports. Sources: kubevirt/bridge-marker:pkg/marker;
k8snetworkplumbingwg/ovs-cni:docs/marker.md; nmstate/kubernetes-nmstate:
api/shared/nodenetworkconfigurationenactment_types.go,
controllers/handler/nodenetworkconfigurationpolicy_controller.go#incrementUnavailableNodeCount,
cmd/handler/main.go#cleanStaleUnavailableCounts, deploy/handler/operator.yaml (the policy
nncp-validation-policy), api/shared/nodenetworkstate_types.go; nmstate/nmstate:rust/src/lib/ifaces.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, kubectl, logs_of, merge_patch, nested, pods_on, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import NNCE, NNCP, NODE, NODE_NETWORK, POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import (
    command_of,
    count,
    cut_middle,
    mentions,
    names,
    without_command,
)

_NODE: Final = "nmstate.io/node"
_POLICY: Final = "nmstate.io/policy"
_COUNTS: Final = "unavailableNodeCountMap"
_PARTS: Final = "name type alt-names controller vlan.base-iface ipv4.address.ip ipv6.address.ip"
READS: Final[Reads] = {
    NNCP: (
        *("metadata.generation", "spec.desiredState.interfaces"),
        *("spec.nodeSelector", f"status.{_COUNTS}"),
    ),
    NODE_NETWORK: (
        *(f"status.currentState.interfaces.{each}" for each in _PARTS.split()),
        "status.currentState.routes.running",
    ),
    NNCE: (
        *("metadata.labels", *CONDITIONS),
        *("status.conditions.message", "status.conditions.lastTransitionTime"),
        "status.policyGeneration",
    ),
    NODE: ("metadata.labels",),
    POD: ("metadata.labels", "spec.nodeName"),
}
_DEFAULT_ROUTES: Final = ("0.0.0.0/0", "::/0")
_UNLISTED: Final = ("veth", "{{", "sriov:")
"""Starts of names that a NodeNetworkState leaves out, that a policy computes, or that stand for a
virtual function by its number (nmstate/nmstate:rust/src/lib/ifaces/sriov.rs).
"""
_MARKERS: Final = ("bridge.network.kubevirt.io/", "ovs-cni.network.kubevirt.io/")
_ERROR: Final = re.compile(r"NmstateError: (.+)")
"""How the program of a policy ends what it prints."""
_DIFFERENCE: Final = re.compile(r"\bdifference\s+=+\s+(.+)", re.DOTALL)
_NO_ROUTE: Final = "failed to retrieve default gw at runProbes"
"""No default route was found after the change, so that it was taken back
(nmstate/kubernetes-nmstate:pkg/probe/probes.go#defaultGw, issue 1063).
"""
_LONGEST: Final = 160
_MOST_POLICIES: Final = 3
_SETTLED: Final = timedelta(minutes=15)
"""A handler that is done gives its place back within seconds."""
_SLOW: Final = timedelta(hours=1)
"""A change of one node takes up to ten minutes, and is tried five times with short breaks."""


def bridge(resource: str) -> str:
    """Return the bridge that a resource stands for; empty: it stands for something else."""
    return next(
        (resource.removeprefix(start) for start in _MARKERS if resource.startswith(start)), ""
    )


class StuckPolicy(NamedTuple):
    """Why a policy does not reach its nodes."""

    nodes: tuple[str, ...]
    """Those that it has not changed."""
    reason: str
    """What the policy does not do: a sentence without its subject."""
    remedy: str
    elsewhere: bool = False
    """Whether its remedy is not to correct it: a second policy, first the one of its port, or only
    another try."""


def remedy(name: str, nodes: Collection[str], cluster: Cluster) -> str:
    """Return how one of these nodes gets a bridge, with the policy that is to make it there, or
    makes it elsewhere.
    """
    make = f"make bridge {name} on {' or '.join(sorted(nodes)[:3])}"
    policies = [
        each
        for each in sorted(cluster.known(NNCP), key=lambda each: each.name)
        if name in interfaces(each)
    ]
    for policy in policies:
        if chosen := [node for node in sorted(nodes) if _selects(policy, node, cluster)]:
            return _of_selected(name, policy, chosen, cluster)
    if not policies or any(find(cluster, NODE, "", node) is None for node in nodes):
        return make
    other = policies[0].name
    return (
        f"{make} (NodeNetworkConfigurationPolicy {other} makes it elsewhere, but its nodeSelector "
        f"does not select {names(sorted(nodes))}: extend it, or write another policy)"
    )


def interfaces(policy: Object) -> list[str]:
    """Return the names of the interfaces that a policy makes."""
    return [name for each in _wanted(policy) if (name := each["name"].text)]


def _selects(policy: Object, node: str, cluster: Cluster) -> bool:
    """Whether a policy is for a node. One with an enactment is; without, its labels decide."""
    if node in _enactments(policy, cluster):
        return True
    obj, selector = find(cluster, NODE, "", node), policy.at("spec", "nodeSelector").map
    return obj is not None and all(obj.labels.get(key) == selector[key] for key in selector)


def _enactments(policy: Object, cluster: Cluster) -> Mapping[str, Object]:
    """Return what is known of a policy on each node, by the names of the nodes in order."""
    return entry(cluster, _by_policy, policy.name) or {}


def _by_policy(cluster: Cluster) -> Mapping[str, Mapping[str, Object]]:
    """Return the same by policy: each node has an enactment of each of its policies."""
    every = sorted(cluster.known(NNCE), key=lambda each: each.labels.get(_NODE, ""))
    by_policy = grouped(every, lambda each: each.labels.get(_POLICY, ""))
    return {
        policy: {each.labels.get(_NODE, ""): each for each in own}
        for policy, own in by_policy.items()
    }


def _of_selected(name: str, policy: Object, nodes: Sequence[str], cluster: Cluster) -> str:
    """Return how the nodes of a policy get a bridge that it has not made there."""
    title, known = _title(policy), _current(policy, cluster)
    stuck = _about(nodes, problems(policy, cluster))
    goal, made = f"make bridge {name} on {names(nodes)}", _with(known, "Available", nodes)
    if stuck is not None and stuck.elsewhere:
        words = without_command(stuck.remedy)
        return f"{words} ({title}, which is to {goal}, {stuck.reason})"
    if stuck is not None and _failed(known[stuck.nodes[0]]):
        return f"correct {title}, which is to {goal} (it {stuck.reason})"
    if stuck is not None:
        words = f"let {title} {goal} (it {stuck.reason}): {without_command(stuck.remedy)}"
        return f"{words} ({command_of(stuck.remedy)})"
    if made:
        words = f"see why the marker of bridges does not offer {name} on {names(made)}"
        return f"{words}, where {title} has made it ({pods_on(made[0])})"
    missing = [node for node in nodes if node not in known]
    if missing and not unlisted(cluster, NNCE):
        words = f"see that nmstate-handler works on {names(missing)}: it has not begun with {title}"
        return f"{words}, which is to {goal} ({_logs(missing[0], cluster)})"
    return f"see how far {title} is, which is to {goal} ({_progress(policy)})"


def _about(nodes: Iterable[str], found: Iterable[StuckPolicy]) -> StuckPolicy | None:
    """Return the first cause that is about one of these nodes; None: none is."""
    return next((each for each in found if set(each.nodes) & set(nodes)), None)


def _title(policy: Object) -> str:
    return f"NodeNetworkConfigurationPolicy {policy.name}"


def _progress(policy: Object) -> str:
    """Return the command that shows how far a policy is on each node."""
    return kubectl("get", NNCE, "", "", "-l", f"{_POLICY}={policy.name}")


def _current(policy: Object, cluster: Cluster) -> dict[str, Object]:
    """Return what is known of the present form of a policy, by node."""
    current = policy.metadata["generation"].integer
    return {
        node: each
        for node, each in _enactments(policy, cluster).items()
        if each.at("status", "policyGeneration").integer in (None, current)
    }


def problems(policy: Object, cluster: Cluster, above: tuple[str, ...] = ()) -> list[StuckPolicy]:
    """Return why a policy has not reached its nodes, and does not by itself: it failed there, or
    they wait for a place that no node has, or for a node that does not get ready.

    ``above``: the policies that wait for a port of this one, whose causes are not followed again.
    """
    known = _current(policy, cluster)
    found = (_failing(policy, known, cluster, above), _waiting(policy, known, cluster))
    return [each for each in found if each]


def _failing(
    policy: Object, known: Mapping[str, Object], cluster: Cluster, above: tuple[str, ...]
) -> StuckPolicy | None:
    failed = [node for node, each in known.items() if _failed(each)]
    if not failed:
        return None
    aborted = _with(known, "Aborted")
    nodes, skipped = (*failed, *aborted), f"; so it is not tried on {names(aborted)}"
    said = known[failed[0]].condition("Failing")["message"].text or ""
    age = clock.since(_changed(known[failed[0]]), cluster)
    begin = f"failed on {names(failed)}{f' {clock.duration(age)} ago' if age is not None else ''}"
    edit, end = about("edit", policy, NNCP), skipped if aborted else ""
    port, why = _lacking(policy, failed, cluster), cut_middle(_error(said), _LONGEST)
    if not port and (found := _found(policy, failed, said, cluster)):
        reason = f"{begin}, as port {found} did not exist there, but it does now{end}"
        return StuckPolicy(nodes, reason, typed(_again(policy), edit), elsewhere=True)
    if port:
        lacks, way = _without_port(port, policy, failed, cluster, above)
        if mentions(said, port) and way:
            return StuckPolicy(nodes, f"{begin}: {lacks}{end}", way, elsewhere=True)
        why = lacks if mentions(said, port) or not why else f"{why}; {lacks}"
    lost = _NO_ROUTE in said
    reason = f"{begin}{f': {why}' if why else ''}"
    reason += ", as no default route was left with it" if lost else ""
    keeps = " (its new interface needs the address and default route of its port)" if lost else ""
    return StuckPolicy(nodes, f"{reason}{end}", typed(f"correct {_title(policy)}{keeps}", edit))


def _without_port(
    port: str, policy: Object, nodes: Sequence[str], cluster: Cluster, above: tuple[str, ...]
) -> tuple[str, str]:
    """Return that nodes lack a port of a policy, and how they get one without a change for the
    others; the second is empty if no other node has it: the policy itself may be changed.
    """
    begin, again = f"port {port}", f"then {_again(policy)}"
    makers = list(_makers(port, policy, cluster))
    for maker in makers:
        if all(_selects(maker, node, cluster) for node in nodes):
            why = f"{begin}, which {_title(maker)} makes, does not exist there"
            follows = len(above) < _MOST_POLICIES and maker.name not in above
            causes = problems(maker, cluster, (*above, policy.name)) if follows else ()
            if (stuck := _about(nodes, causes)) is None:
                first = f"first let {_title(maker)} make {port} on {names(nodes)}"
                return why, typed(first, _progress(maker), again)
            first = f"first {without_command(stuck.remedy).removeprefix('first ')}"
            way = typed(first, command_of(stuck.remedy), again)
            return f"{why}, as that policy {stuck.reason}", way
    cards = {node: list(_cards(node, cluster)) for node in nodes}
    of = [f"{node} has {names(cards[node], 80) or 'no free one'}" for node in nodes[:2]]
    makes = f", which {_title(makers[0])} makes on other nodes," if makers else ""
    why = f"{begin}{makes} does not exist there ({', '.join(of)})"
    made = _with(_current(policy, cluster), "Available")
    if not made:
        return why, ""
    ways = (
        f"write a second policy for {names(node for node in nodes if cards[node])}, with a "
        "nodeSelector and a port that is there (without an address), and",
        f"add a network card to {names(nodes)}, or",
    )
    words = (
        f"{ways[not any(cards.values())]} let the nodeSelector of {_title(policy)} leave "
        f"{names(nodes)} out, as another port in it would break {names(made)}"
    )
    return why, typed(words, about("get", policy, NNCP, "-o", "yaml"))


def _again(policy: Object) -> str:
    """Return how a policy that failed is tried again: after its last attempt, a handler waits for a
    new generation. A description of an interface is one, and changes no node otherwise.

    Sources: nmstate/kubernetes-nmstate:controllers/handler/nodenetworkconfigurationpolicy_
    controller.go#onCreateOrUpdateWithDifferentGenerationOrDelete #RetriesUntilFail; issue 1266.
    """
    return f"set a new description for an interface of {_title(policy)}, so that it is tried again"


def _lacking(policy: Object, nodes: Sequence[str], cluster: Cluster) -> str:
    """Return the port that all nodes lack on which a policy failed; empty: one may have it."""
    port, *others = (_missing(policy, node, cluster) for node in nodes)
    return "" if any(other != port for other in others) else port


def _makers(port: str, policy: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the other policies that make a port: a bond or a VLAN, not a card."""
    for each in sorted(cluster.known(NNCP), key=lambda each: each.name):
        made = (wanted["name"].text for wanted in _wanted(each) if _is_virtual(wanted))
        if each.name != policy.name and port in made:
            yield each


def _found(policy: Object, nodes: Sequence[str], said: str, cluster: Cluster) -> str:
    """Return the port that an error names as missing, if all nodes have it now; empty: none."""
    for name in (name for each in _wanted(policy) for name in _ports(each)):
        if any(mentions(said, f"{unknown} {name}") for unknown in _UNKNOWN):
            return name if all(name in _present(node, cluster) for node in nodes) else ""
    return ""


_UNKNOWN: Final = ("unknown port", "Ethernet interface", "unknown type interface")
"""How nmstate names a port that does not exist (nmstate/nmstate:rust/src/lib/ifaces/
inter_ifaces_controller.rs, inter_ifaces.rs, ethernet.rs).
"""


def _error(said: str) -> str:
    """Return the error in what a handler says: of a state that was not reached, the difference."""
    error, differs = _ERROR.search(said), _DIFFERENCE.search(said)
    words = " ".join((error[1] if error else said).split())
    if differs is None:
        return words
    difference = " ".join(differs[1].split()).rstrip(" '")
    return f"{words.partition(':')[0]}: {difference}"


def _waiting(policy: Object, known: Mapping[str, Object], cluster: Cluster) -> StuckPolicy | None:
    """Return that nodes wait for a place that no node has, or for a node that does not get
    ready.
    """
    waits, busy = _with(known, "Pending"), _with(known, "Progressing")
    changed = max(map(_changed, known.values()), default="")
    age = clock.since(changed, cluster)
    if age is None or age < _SETTLED or unlisted(cluster, NNCE):
        return None
    lasting, generation = clock.lasts(age), str(policy.metadata["generation"].value)
    held = len(busy) + sum(map(_failed, known.values()))
    counted = policy.at("status", _COUNTS, generation).integer or 0
    wait = f"{names(waits)} {'waits' if len(waits) == 1 else 'wait'}"
    if waits and counted > held:
        reason = (
            f"has stood still{lasting}: {wait} (MaxUnavailableLimitReached), as its status counts "
            f"{count(counted, 'node')} as being changed, while {names(busy) or 'none'} is"
        )
        words = f"set that count ({_COUNTS}) to {held}, as a change of its spec would be refused"
        data = nested(("status", _COUNTS, generation), held)
        command = merge_patch(NNCP, policy.name, "", data, "--subresource=status")
        return StuckPolicy((*waits, *busy), reason, typed(words, command))
    if not busy or age < _SLOW:
        return None
    others = f", for which {wait}" if waits else ""
    return StuckPolicy(
        (*busy, *waits),
        f"has been changing {names(busy)}{lasting}{others}",
        typed(f"see what nmstate-handler does on {busy[0]}", _logs(busy[0], cluster)),
    )


def _logs(node: str, cluster: Cluster) -> str:
    handlers = (
        pod
        for pod in cluster.known(POD)
        if pod.labels.get("component") == "kubernetes-nmstate-handler"
        and pod.at("spec", "nodeName").text == node
    )
    handler = next(handlers, None)
    return logs_of(handler) if handler is not None else pods_on(node)


def _with(known: Mapping[str, Object], condition: str, nodes: Iterable[str] = ()) -> list[str]:
    """Return the nodes for which a condition is True, of those given; none given: of all."""
    wanted = [node for node in nodes or known if node in known]
    return [node for node in wanted if known[node].is_true(condition)]


def _failed(enactment: Object) -> bool:
    """Whether it is not tried again on a node: a further try is Progressing too."""
    return enactment.is_true("Failing") and not enactment.is_true("Progressing")


def _changed(enactment: Object) -> str:
    """Return when a condition changed last; empty: that is not known."""
    every = enactment.at("status", "conditions").items()
    stamps = (clock.stamp(clock.instant(each["lastTransitionTime"].text)) for each in every)
    return max(filter(None, stamps), default="")


# --- ports that a node does not have ----------------------------------------------------------


def _missing(policy: Object, node: str, cluster: Cluster) -> str:
    """Return the first port of a policy that a node does not have; empty: none is known."""
    known, own = _present(node, cluster), _own(policy)
    wanted = (name for each in _wanted(policy) for name in _ports(each))
    lacking = (name for name in wanted if name not in known and name not in own)
    return next((name for name in lacking if not name.startswith(_UNLISTED)), "") if known else ""


def _own(policy: Object) -> set[str | None]:
    """Return the interfaces that a policy makes itself, or finds by an address."""
    return {
        each["name"].text
        for each in _wanted(policy)
        if _is_virtual(each) or each["identifier"].text == "mac-address"
    }


def _is_virtual(interface: Field) -> bool:
    """Return whether a policy makes an interface, and does not only set up one that exists.

    Source: nmstate/nmstate:rust/src/lib/iface.rs#is_virtual.
    """
    return interface["type"].text not in _PHYSICAL or interface["veth"].present


_PHYSICAL: Final = (None, "ethernet", "infiniband", "loopback", "unknown")


def _wanted(policy: Object) -> list[Field]:
    made = policy.at("spec", "desiredState", "interfaces").items()
    return [each for each in made if each["state"].text != "absent"]


def _cards(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield the network cards of a node that are free: neither they nor a VLAN on them has an
    address or the default route, or is a port.
    """
    state = find(cluster, NODE_NETWORK, "", node)
    routes = state.at("status", "currentState", "routes", "running").items() if state else ()
    default = {
        each["next-hop-interface"].text
        for each in routes
        if each["destination"].text in _DEFAULT_ROUTES
    }
    every = _actual(node, cluster)
    used = [
        each
        for each in every
        if each["name"].text in default or each["controller"].text or _has_address(each)
    ]
    taken = {
        name for each in used for name in (each["name"].text, each.at("vlan", "base-iface").text)
    }
    for each in every:
        if each["type"].text == "ethernet" and (name := each["name"].text) and name not in taken:
            yield name


def _has_address(interface: Field) -> bool:
    """Return whether an interface has an address besides the one that each card gives itself."""
    addresses = (
        address["ip"].text or ""
        for family in ("ipv4", "ipv6")
        for address in interface.at(family, "address").items()
    )
    return any(ip and not ip.startswith(_LINK_LOCAL) for ip in addresses)


_LINK_LOCAL: Final = ("fe80:", "169.254.")


def _present(node: str, cluster: Cluster) -> set[str]:
    every = _actual(node, cluster)
    named = (*every, *(alias for each in every for alias in each["alt-names"].items()))
    return {name for each in named if (name := each["name"].text)}


def _actual(node: str, cluster: Cluster) -> list[Field]:
    state = find(cluster, NODE_NETWORK, "", node)
    return list(state.at("status", "currentState", "interfaces").items()) if state else []


def _ports(interface: Field) -> Iterator[str]:
    """Yield the interfaces below a bridge, a bond or a VLAN. An ovs-bridge makes internal ports."""
    is_ovs = interface["type"].text == "ovs-bridge"
    for port in () if is_ovs else interface.at("bridge", "port").items():
        if (name := port["name"].text) and not port["link-aggregation"].present:
            yield name
    for port in interface.at("link-aggregation", "port").items():
        yield from filter(None, (port.text,))
    yield from filter(None, (interface.at("vlan", "base-iface").text,))
