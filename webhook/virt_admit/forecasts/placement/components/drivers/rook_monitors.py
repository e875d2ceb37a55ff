"""Why Rook does not replace a Ceph monitor whose node no longer exists.

Rook pins each monitor on a host path to its node, and replaces it at once where that node does not
exist. It first looks for a node with a canary pod that has the placement of the CephCluster and no
other monitor beside it: where no node takes the canary, the old Deployment stays. Sources:
rook/rook:pkg/operator/ceph/cluster/mon/health.go#shouldFailoverMonImmediately #failoverMon
#updateMonTimeout, :pkg/operator/ceph/cluster/mon/mon.go#scheduleMonitor,
:pkg/apis/ceph.rook.io/v1/placement.go#GetMonPlacement,
:Documentation/Storage-Configuration/Advanced/ceph-mon-health.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import candidates
from virt_admit.model.commands import about, argument, kubectl, logs_of, shell, typed
from virt_admit.model.evidence import lost_pins, writers
from virt_admit.model.evidence.lost_pins import LostPin
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, DEPLOYMENT, NODE, POD
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.selectors import IN, parse
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler import pods as scheduled_pods
from virt_admit.model.scheduler.node_selectors import NodeSelector, parse_node_selector
from virt_admit.model.scheduler.pod_terms import REQUIRED, PodTerm
from virt_admit.model.scheduler.pods import Pod

_MON: Final = "rook-ceph-mon"
_OPERATOR: Final = "rook-ceph-operator"
_SKIP: Final = "ceph.rook.io/do-not-reconcile"
"""With this label on any of their Deployments, Rook does not check the monitors at all
(pkg/operator/ceph/controller/spec.go#GetDaemonsToSkipReconcile).
"""
_CANARY: Final = "mon_canary"
NO_NODE: Final = "Rook finds no node for another monitor"
"""How the reason begins that its placement keeps a monitor where it is."""
_USUAL: Final = 3
"""The number of monitors where the CephCluster names none."""
_NOT_FOR_MONITORS: Final = (".kubernetes.io", ".k8s.io", ".topology.rook.io")
"""Domains of labels that say what a node is."""
_ROLE: Final = "node-role.kubernetes.io/"
_ZONED: Final = ("stretchCluster", "zones")
"""With these, a monitor is bound to a zone as well."""
_REPLACED: Final = timedelta(minutes=20)
"""Rook has replaced a monitor by then: it waits twice for ten minutes."""
READS: Final[Reads] = union(
    candidates.READS,
    clock.READS,
    lost_pins.READS,
    {
        CEPH_CLUSTER: (
            "metadata.ownerReferences",
            "spec.placement",
            "spec.healthCheck",
            "spec.mon",
            "spec.network.provider",
        ),
        DEPLOYMENT: ("metadata.labels", "spec.replicas"),
        POD: ("metadata.creationTimestamp", "metadata.labels", "status.conditions"),
    },
)


class LostMonitor(NamedTuple):
    """A monitor whose node does not exist, or has another hostname."""

    pod: Object
    pin: LostPin
    age: timedelta
    unreplaced: Problem

    @property
    def owner(self) -> str:
        """Return its Deployment, which has the name of the monitor."""
        name = _letter(self.pod)
        return f"Deployment {_MON}-{name}" if name else "a Ceph monitor"


def _letter(mon: Object) -> str | None:
    """Return the name of a monitor."""
    return mon.labels.get("mon") or mon.labels.get("ceph_daemon_id")


def of_cluster(ceph: Object, cluster: Cluster) -> Iterator[LostMonitor]:
    """Yield the monitors of a CephCluster whose node does not exist, or has another hostname, and
    that wait for long."""
    for pod in sorted(cluster.known(POD, ceph.namespace), key=lambda each: each.name):
        pin = lost_pins.of_pod(pod, cluster) if pod.labels.get("app") == _MON else None
        age = clock.age(pod, cluster)
        found = of_pod(pod, cluster) if pin is not None and pin.gone else None
        if pin is not None and pin.renamed:
            remedy = lost_pins.remedy(pod, pin, cluster)
            found = Problem("No other node can take this pod", remedy)
        if pin is not None and found is not None and age is not None and age >= _REPLACED:
            yield LostMonitor(pod, pin, age, found)


def of_pod(pod: Object, cluster: Cluster) -> Problem | None:
    """Return why Rook does not replace a monitor whose node does not exist; None: the pod is none,
    or its CephCluster is not known.
    """
    known = list(cluster.known(CEPH_CLUSTER, pod.namespace))
    if pod.labels.get("app") != _MON or len(known) != 1:
        return None
    ceph = known[0]
    operators = [each for each in cluster.known(POD) if each.labels.get("app") == _OPERATOR]
    stands = _minority(ceph, cluster) or _of_operator(operators, cluster) or _skipped(ceph, cluster)
    if stands is not None:
        return stands
    check = ceph.at("spec", "healthCheck", "daemonHealth", "mon")
    if check["disabled"].boolean or (check["timeout"].text or "").rstrip("hms") == "0":
        why = f"CephCluster {ceph.name} turns the replacement of monitors off (healthCheck)"
        words = "set a timeout such as 10m in its spec.healthCheck.daemonHealth.mon"
        return Problem(why, _edited(words, ceph, "healthCheck"))
    return _of_placement(pod, ceph, operators, cluster)


def _of_operator(operators: list[Object], cluster: Cluster) -> Problem | None:
    """Return that the operator of Rook does not run; None: it does, or that is not known."""
    if any(_is_ready(each) for each in operators):
        return None
    if operators:
        first = operators[0]
        why = f"Rook would replace it, but its operator (pod {first.full_name}) is not ready"
        return Problem(why, typed("repair the operator", about("describe", first, POD)))
    if unlisted(cluster, POD):
        return None
    why = "Rook would replace it, but no pod of its operator exists"
    own = [each for each in cluster.known(DEPLOYMENT) if each.name == _OPERATOR]
    if len(own) != 1:
        only = f"--field-selector=metadata.name={_OPERATOR}"
        see = shell("kubectl", "get", "deployments", "-A", only)
        return Problem(why, typed("start the operator again", see))
    if own[0].at("spec", "replicas").integer == 0:
        words = "start the operator again, unless it is stopped for a repair that still lasts"
        start = about("scale", own[0], DEPLOYMENT, "--replicas=1")
        return Problem(f"{why} (0 replicas)", typed(words, start))
    see = about("describe", own[0], DEPLOYMENT)
    return Problem(why, typed("see why its Deployment makes none", see))


def _skipped(ceph: Object, cluster: Cluster) -> Problem | None:
    """Return that Rook checks no monitor while one of them has the label for that."""
    every = (*cluster.known(DEPLOYMENT, ceph.namespace), *cluster.known(POD, ceph.namespace))
    marked = [each for each in every if each.labels.get("app") == _MON and _SKIP in each.labels]
    if not marked:
        return None
    own = f"{_MON}-{_letter(marked[0])}"
    why = f"Rook replaces no monitor while one has the label {_SKIP} ({marked[0].name})"
    off = kubectl("label", DEPLOYMENT, own, ceph.namespace, f"{_SKIP}-")
    return Problem(why, typed("take it off once the work on that one has ended", off))


def _minority(ceph: Object, cluster: Cluster) -> Problem | None:
    """Return that too few monitors are ready for Rook to replace one; None: that is not known."""
    pods = [
        each
        for each in cluster.known(POD, ceph.namespace)
        if each.labels.get("app") == _MON and _CANARY not in each.labels and not each.ended
    ]
    ready = sum(map(_is_ready, pods))
    wanted = ceph.at("spec", "mon", "count").integer or _USUAL
    if unlisted(cluster, POD) or ready > wanted // 2:
        return None
    why = f"Rook replaces none without a majority: {ready} of {wanted} monitors ready"
    words = (
        "bring another monitor or its node back; if none can come back, restore the quorum as in "
        "Rook's disaster recovery"
    )
    return Problem(why, typed(words, about("describe", ceph, CEPH_CLUSTER)))


def _is_ready(pod: Object) -> bool:
    return not pod.deleted and pod.is_true("Ready")


def _of_placement(
    pod: Object, ceph: Object, operators: list[Object], cluster: Cluster
) -> Problem | None:
    new, filters = _canary(pod, ceph), candidates.scheduler(cluster)
    placement = filters.place(new)
    free = filters.place(replace(new, node_affinity=None)).certain
    log = logs_of(operators[0]) if operators else about("describe", ceph, CEPH_CLUSTER)
    zoned = any(ceph.at("spec", "mon", each).present for each in _ZONED)
    if unlisted(cluster, POD) or zoned or placement.certain != ():
        why = "Rook replaces a monitor of a node that does not exist, but has not done so"
        return Problem(why, typed("see why in the log of its operator", log))
    if not free or new.node_affinity is None:
        why = NO_NODE
        words = (
            f"add a node that the placement of CephCluster {ceph.name} allows, or free one that "
            "has no monitor"
        )
        return Problem(why, typed(words, log))
    demanded = _demanded(new.node_affinity)
    others = {
        each.at("spec", "nodeName").text
        for each in cluster.known(POD, pod.namespace)
        if each.labels.get("app") == _MON
    }
    nodes = {node.name: node for node in cluster.known(NODE)}
    roles = {frozenset(_roles(nodes[name])) for name in others if name in nodes}
    fitting = [name for name in free if frozenset(_roles(nodes[name])) in roles] or list(free)
    terms = new.node_affinity.terms
    only = names(map(str, terms[0].labels)) if len(terms) == 1 else ""
    what = f"demands {only or 'labels (placement)'}, and no node that could hold one has that"
    if new.node_affinity.errors or not any(each.labels or each.fields for each in terms):
        what = "has a node affinity for them that matches no node at all"
    why = f"{NO_NODE}: CephCluster {ceph.name} {what}"
    if demanded is None or not _is_free(demanded[0], nodes[fitting[0]], ceph):
        words = f"let the mon placement allow a node such as {fitting[0]}, and Rook moves it there"
        return Problem(why, _edited(words, ceph, "placement"))
    last = f"label a node that may hold it, such as {fitting[0]}, and Rook moves the monitor"
    key, value = demanded
    command = shell("kubectl", "label", "node", argument(fitting[0]), f"{key}={value}")
    return Problem(why, typed(last, command))


def _is_free(key: str, node: Object, ceph: Object) -> bool:
    """Return whether a label may be set on a node for monitors alone: Rook starts OSDs, which take
    its disks, where the placement of all its daemons matches, and others own labels of Kubernetes.
    """
    domain = f".{key.rpartition('/')[0]}"
    placements = ceph.at("spec", "placement").map
    others = {name: each for name, each in placements.items() if name != "mon"}
    return (
        key not in node.labels and key not in str(others) and not domain.endswith(_NOT_FOR_MONITORS)
    )


def _canary(pod: Object, ceph: Object) -> Pod:
    """Return the pod with which Rook looks for a node for another monitor."""
    placements = ceph.at("spec", "placement")
    both = [placements["mon"], placements["all"]]
    own = both[0] if both[0]["nodeAffinity"].is_map else both[1]
    required = own.at("nodeAffinity", REQUIRED)
    mon = ceph.at("spec", "mon")
    shared = mon["allowMultiplePerNode"].boolean and (
        ceph.at("spec", "network", "provider").text != "host"
    )
    apart = PodTerm(
        HOSTNAME, parse({"matchLabels": {"app": _MON}}), frozenset((pod.namespace,)), None
    )
    tolerations = [item.value for each in both for item in each["tolerations"].items()]
    return replace(
        scheduled_pods.read(pod),
        name=f"{pod.name}-canary",
        node_selector={},
        node_affinity=parse_node_selector(required.value) if required.is_map else None,
        tolerations=tolerations,
        affinity=(),
        anti_affinity=() if shared else (apart,),
        spread=(),
    )


def _demanded(affinity: NodeSelector) -> tuple[str, str] | None:
    """Return the label that makes a node match; None: it takes more than one, or another change."""
    if len(affinity.terms) != 1 or affinity.terms[0].fields or len(affinity.terms[0].labels) != 1:
        return None
    (only,) = affinity.terms[0].labels
    if only.operator == IN:
        return only.key, min(only.values)
    return (only.key, "true") if only.operator == "Exists" else None


def _roles(node: Object) -> list[str]:
    return [key for key in node.labels if key.startswith(_ROLE)]


def _edited(words: str, ceph: Object, field: str) -> str:
    """Return a change of a field of a CephCluster as a remedy: in its owner where it has one."""
    owner = writers.owner_above(ceph)
    if owner is None:
        return typed(words, about("edit", ceph, CEPH_CLUSTER))
    return typed(f"{words} ({writers.field_above(ceph, field)})", owner.command("edit"))
