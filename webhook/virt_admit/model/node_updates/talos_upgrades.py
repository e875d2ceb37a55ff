"""Upgrades of Talos and of Kubernetes on it by tuppr that do not go on.

tuppr begins when every health check passes, which are CEL expressions over the status of an object.
A field that is missing there ends an expression with an error, and tuppr tries again without a
limit. A failed upgrade is left until it is changed or reset. Sources:
home-operations/tuppr:internal/healthcheck/checker.go#CheckHealth #runCELExpression,
:internal/controller/talosupgrade/upgrade.go#processUpgrade,
:internal/controller/coordination/coordinator.go, :internal/constants/constants.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import KUBERNETES_UPGRADE, NODE, TALOS_UPGRADE, Kind
from virt_admit.model.kubernetes.nodes import TALOS
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import update_orders
from virt_admit.model.node_updates.update_orders import StandingOrder

_OURS: Final = "tuppr.home-operations.com"
OUTDATED: Final = f"{_OURS}/outdated"
"""The taint of nodes that wait for their update (talosupgrade/nodes.go#addNodeOutdatedTaint)."""
_KINDS: Final = (TALOS_UPGRADE, KUBERNETES_UPGRADE)
READS: Final[Reads] = union(
    clock.READS, {NODE: ("status.nodeInfo.osImage",)}, dict.fromkeys(_KINDS, ())
)
_BEFORE: Final = ("", "Pending", "HealthChecking")
"""The phases in which it waits for what it needs."""
_FAILED: Final = "Failed"
_WINDOW: Final = "MaintenanceWindow"
_OVER: Final = ("Completed", _WINDOW)
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_CHOICE: Final = re.compile(r"\|\||\?|\bhas\(")
"""What may let an expression pass although a field is missing."""
_FIELD: Final = re.compile(r"(?<![\w.])(?:object\.)?status((?:\.[A-Za-z_]\w*)+)(\()?")
"""A selection in the status; with a bracket after it, the last name is a function."""


def unread(cluster: Cluster) -> Iterator[Unseen]:
    """Yield that such upgrades could not be read, where a node may run Talos."""
    systems = [node.at("status", "nodeInfo", "osImage").text for node in cluster.known(NODE)]
    if not all(system and not system.startswith(TALOS) for system in systems):
        for kind in _KINDS:
            yield from more_may_exist(cluster, kind)


def standing(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the upgrades by tuppr that do not go on."""
    found = [(upgrade, kind) for kind in _KINDS for upgrade in cluster.known(kind)]
    busy = any(
        upgrade.at("status", "phase").text not in (None, *_BEFORE, *_OVER, _FAILED)
        for upgrade, _ in found
    )
    for upgrade, kind in found:
        yield from _of(upgrade, kind, cluster, busy=busy)


def _of(upgrade: Object, kind: Kind, cluster: Cluster, *, busy: bool) -> Iterator[StandingOrder]:
    status, name = upgrade["status"], update_orders.title(upgrade)
    phase, said = status["phase"].text or "", update_orders.quoted(status["message"].text)
    annotate = ("kubectl", "annotate", kind.kind.lower(), argument(upgrade.name))
    if f"{_OURS}/suspend" in upgrade.annotations:
        resume = typed("Resume it", shell(*annotate, f"{_OURS}/suspend-"))
        yield StandingOrder(upgrade, f"{name} is suspended by its annotation", resume, True)
    elif phase == _FAILED:
        again = shell(*annotate, f"{_OURS}/reset=true")
        way = typed("Correct what it reports, then let tuppr begin again", again)
        words = f"{name} has failed, and tuppr does not try it again{said}"
        yield StandingOrder(upgrade, words, way, True)
    elif _window(upgrade, cluster) is not None:
        return  # it waits on purpose
    elif phase in _BEFORE and not busy:  # one upgrade at a time: the others wait for it
        yield from _waiting(upgrade, kind, phase or "new", said, cluster)
    elif phase not in (*_BEFORE, *_OVER) and update_orders.is_long(
        since := status["lastUpdated"].text, cluster
    ):
        words = f"{name} goes on: it is {phase} and unchanged{clock.lasting(since, cluster)}{said}"
        see = typed("See what it waits for", about("describe", upgrade, kind))
        yield StandingOrder(upgrade, words, see, False)


def of_node(name: str, cluster: Cluster) -> str:
    """Return the upgrade of Talos that reboots a node now and uncordons it afterwards, as kind and
    name; empty: none does (api/v1alpha1/talosupgrade_types.go#TalosUpgradeStatus).
    """
    for upgrade in cluster.known(TALOS_UPGRADE):
        status = upgrade["status"]
        nodes = [
            status["currentNode"].text,
            *(each.text for each in status["currentNodes"].items()),
        ]
        if name in nodes and _phase(upgrade) not in (*_BEFORE, *_OVER, _FAILED):
            return update_orders.title(upgrade)
    return ""


def before_nodes(cluster: Cluster) -> str:
    """Return for which maintenance window an upgrade of Talos waits before its nodes; empty: for
    none, or one is under way.
    """
    known = cluster.known(TALOS_UPGRADE)
    if any(_phase(each) not in (*_BEFORE, *_OVER, _FAILED) for each in known):
        return ""
    for upgrade in known:
        begins = _window(upgrade, cluster)
        if begins is not None and f"{_OURS}/suspend" not in upgrade.annotations:
            left = clock.elapsed(begins, cluster)
            when = f" (in {clock.duration(-left)})" if left is not None else ""
            title = update_orders.title(upgrade)
            return (
                f"{title} waits for its maintenance window, which begins at "
                f"{clock.stamp(begins)}{when}"
            )
    return ""


def _phase(upgrade: Object) -> str:
    return upgrade.at("status", "phase").text or ""


def _window(upgrade: Object, cluster: Cluster) -> datetime | None:
    """Return when the maintenance window begins for which an upgrade waits; None: for none, or it
    is not known to be in the future.

    Releases differ in the phase that they write meanwhile (talosupgrade/upgrade.go
    #checkMaintenanceWindow).
    """
    if _phase(upgrade) not in (*_BEFORE, _WINDOW):
        return None
    begins = clock.instant(upgrade.at("status", "nextMaintenanceWindow").text)
    current = clock.now(cluster)
    later = begins is not None and current is not None and begins > current
    return begins if later else None


def _waiting(
    upgrade: Object, kind: Kind, phase: str, said: str, cluster: Cluster
) -> Iterator[StandingOrder]:
    since = (
        upgrade.at("status", "startedAt").text
        or upgrade.condition("Progressing")["lastTransitionTime"].text
    )
    if not update_orders.is_long(since, cluster):
        return
    name, what = update_orders.title(upgrade), f"{phase}{clock.lasting(since, cluster)}{said}"
    for check in upgrade.at("spec", "healthChecks").items():
        obj = _checked(check, cluster)
        field = _missing(check["expr"].text or "", obj) if obj is not None else ""
        if obj is not None and field:
            check_of = (
                f"its check of {obj.kind} {obj.full_name} never passes, as that has no {field}"
            )
            way = (
                f"Ask has({field}) before that field in the expression of the check, so that it "
                "passes without it"
            )
            why = (
                f"{name} does not begin, because {check_of} and the expression ends with an error. "
                f"It is {what}"
            )
            yield StandingOrder(upgrade, why, typed(way, about("edit", upgrade, kind)), True)
            return
    edit = typed("correct its checks", about("edit", upgrade, kind))
    way = f"Let what it waits for become healthy; or {edit}"
    yield StandingOrder(upgrade, f"{name} begins: it is {what}", way, False)


def _checked(check: Field, cluster: Cluster) -> Object | None:
    """Return the object that a health check names; None: it names none,
    or the object is not known.
    """
    api_version, kind, name = (check[key].text or "" for key in ("apiVersion", "kind", "name"))
    known = kinds.find(api_version.rpartition("/")[0], kind) or kinds.guess(api_version, kind)
    return find(cluster, known, check["namespace"].text or "", name) if name else None


_COUNTER: Final = re.compile(r"Replicas$|^replicas$|^number|Number|^active$|^succeeded$|^failed$")


def _missing(expression: str, obj: Object) -> str:
    """Return a field that an expression always reads and that an object does not have; empty: none,
    as far as is seen.
    """
    bare = _TEXT.sub("''", expression)
    if _CHOICE.search(bare):
        return ""
    for path, called in _FIELD.findall(bare):
        words = path.removeprefix(".").split(".")[: -1 if called else None]
        present = obj["status"]
        for word in words:
            present = present[word]
            if not present.present and _COUNTER.search(word):
                break  # a counter that is 0 is left out, and comes back by itself
            if not present.present:
                return f"status.{'.'.join(words)}"
    return ""
