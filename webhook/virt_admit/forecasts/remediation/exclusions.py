"""Nodes that a NodeHealthCheck leaves alone because of a label, or because it says so itself.

Up to release 0.11 the label excludes a node with any value, from 0.12 on with ``true`` alone.
Sources: medik8s/
node-healthcheck-operator:controllers/nodehealthcheck_controller.go#isNodeRemediationExcluded
(release-0.11), :internal/controller/nodehealthcheck_controller.go#isNodeRemediationExcluded
(v0.12.0), :internal/controller/utils/events.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, events, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NHC, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import show
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.node_updates import node_phases
from virt_admit.model.remediation import check_scope

EXCLUDED: Final = "remediation.medik8s.io/exclude-from-remediation"
"""The label. Node Maintenance Operator sets it too, with the value ``true``, and takes it back."""
FIXED: Final = (0, 12)
"""The first release that reads the value."""
READS: Final[Reads] = union(node_health.READS, {NHC: (), NODE: ("metadata.labels",)})
"""Without ``RELEASE_READS``, which the webhook does not keep of pods: it says less."""
RELEASE_READS: Final[Reads] = {POD: ("spec.containers.image",)}
_IMAGE: Final = re.compile(r"/node-healthcheck-operator:v?([0-9]{1,3})\.([0-9]{1,3})")
"""The image of the operator, where its tag is the release.
Images of OpenShift have a digest alone.
"""
_BY_LABEL: Final = "Exclude from Remediation label"


def reason(node: Object, cluster: Cluster) -> str:
    """Return why the label excludes a node; empty: it does not.

    Raises:
        Unseen: the release of the operator decides, and nothing shows it.
    """
    label = node.label(EXCLUDED)
    if not label.present:
        return ""
    if label.text == "true":
        return f"the label {EXCLUDED} excludes it"
    release = cluster.cached(_release)
    if release is None and not any(_BY_LABEL in said for said in _skipped(node, cluster)):
        raise Unseen(
            f"the release of Node Health Check, as {EXCLUDED}={label.text or ''} excludes "
            f"{node.name} before 0.12"
        )
    if release is not None and release >= FIXED:
        return ""
    return f"the label {EXCLUDED} excludes it: {_unread_value(node, cluster)}"


def _unread_value(node: Object, cluster: Cluster) -> str:
    release = cluster.cached(_release)
    which = f"release {release[0]}.{release[1]}" if release is not None else "this release"
    return f"{which} of Node Health Check does not read its value {show(node.label(EXCLUDED).text)}"


def state(node: Object, cluster: Cluster) -> str | Unseen:
    """Return the same, with what is not known as a value."""
    try:
        return reason(node, cluster)
    except Unseen as unseen:
        return unseen


def is_excluded(node: Object, cluster: Cluster) -> bool:
    """Return whether the label certainly excludes a node."""
    try:
        return bool(reason(node, cluster))
    except Unseen:
        return False


def repair(name: str, cluster: Cluster) -> str:
    """Return how a lost node is remediated that its label excludes by mistake; empty: it does not,
    or it is meant to.
    """
    node = find(cluster, NODE, "", name)
    if node is None or node.label(EXCLUDED).text == "true" or not is_excluded(node, cluster):
        return ""
    watched = (
        watch.check.obj.name
        for some in check_scope.watches(cluster, NHC).by_namespace.values()
        for watch in some
        if any(each.name == name for each in watch.selection.objects)
    )
    check = next(watched, "")
    why = (
        f"because of which NodeHealthCheck {check} leaves it alone: {_unread_value(node, cluster)}"
    )
    words = f"remove the label {EXCLUDED} from {name}, {why}"
    return typed(words, without_label(name)) if check else ""


def without_label(name: str) -> str:
    """Return the command that removes the label from a node."""
    return shell("kubectl", "label", "node", argument(name), f"{EXCLUDED}-")


def late(
    check: Object, node: Object, time: tuple[int, int | None], cluster: Cluster
) -> Iterator[str]:
    """Yield what shows of a lost node that a NodeHealthCheck does not do what is expected.

    ``time``: the expected seconds.
    """
    yield from doubts(check, node, cluster)
    yield from overdue(check, node, time[0] if time[1] is None else time[1], cluster)


def doubts(check: Object, node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield what a NodeHealthCheck says of a lost node that it has not remediated,
    so that it may not do so.
    """
    said = next((each for each in _skipped(node, cluster, check.name) if _BY_LABEL not in each), "")
    if said and _begun(check, node) is None:
        yield (
            f"whether NodeHealthCheck {check.name} remediates {node.name}: it has said "
            f"{show(cut_middle(said, 160))}"
        )


def _skipped(node: Object, cluster: Cluster, check: str = "") -> Iterator[str]:
    """Yield why a lost node was skipped since it is lost, in the words of the operator,
    the newest first.
    """
    if not node_health.silence_now(node.name, cluster):
        return
    since = node_phases.unready_since(node)
    for event in cluster.cached(_events).get(node.name, ()):
        about, when = event.at("involvedObject", "name").text, events.time_of(event)
        old = since is not None and when is not None and when < since
        if not old and check in ("", about):
            yield event["message"].words


def _events(cluster: Cluster) -> Mapping[str, list[Object]]:
    """Return the events about remediations that were skipped by the nodes that they name,
    the newest first.
    """
    found: dict[str, list[Object]] = {}
    for event in sorted(
        events.known(NHC.kind, "RemediationSkipped", cluster), key=_age, reverse=True
    ):
        for name in {each.rstrip(".") for each in _NAMED.findall(event["message"].words)}:
            found.setdefault(name, []).append(event)
    return found


_NAMED: Final = re.compile(r"\b(?:node|of):? (?=([\w.-]{1,253}))")
"""``of node: n1`` names two: what no node is called is not asked for."""


def _age(event: Object) -> str:
    when = events.time_of(event)
    return when.isoformat() if when is not None else ""


def _release(cluster: Cluster) -> tuple[int, int] | None:
    """Return the oldest release of the operator that runs; None: no image shows it."""
    images = (
        each["image"].text or ""
        for pod in cluster.known(POD)
        for each in pod.at("spec", "containers").items()
    )
    found = (_IMAGE.search(image) for image in images)
    return min(((int(each[1]), int(each[2])) for each in found if each), default=None)


def overdue(check: Object, node: Object, allowed: float, cluster: Cluster) -> Iterator[str]:
    """Yield that a health check should have remediated a lost node long ago, and has not.

    ``allowed``: seconds.
    """
    if not node_health.silence_now(node.name, cluster):
        return
    now, lost = clock.now(cluster), node_phases.unready_since(node)
    if now is None or lost is None:
        return
    if (now - (_begun(check, node) or lost)).total_seconds() > allowed + _SETTLED:
        since = clock.duration(now - lost)
        yield (
            f"why {check.kind} {check.name} has not freed the pods of {node.name}, which has "
            f"been lost for {since}"
        )


def _begun(check: Object, node: Object) -> datetime | None:
    """Return when the newest remediation of a node began that has not timed out; None:
    there is none.
    """
    own = check.at("status", "unhealthyNodes").named(node.name)["remediations"]
    begun = (each for each in own.items() if not each["timedOut"].present)
    return max(filter(None, (clock.instant(each["started"].text) for each in begun)), default=None)


_SETTLED: Final = 600
"""Seconds by which a remediation may take longer than its parts say."""
