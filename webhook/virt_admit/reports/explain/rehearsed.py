"""The rehearsal of an upgrade as ``explain`` needs it: once for a cluster,
without trying other settings.
"""

from __future__ import annotations

from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal, rehearse
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import by_resource
from virt_admit.model.messages import mentions


@cached
def rehearsal(cluster: Cluster) -> Rehearsal:
    """Return the rehearsal with the usual settings."""
    return rehearse(cluster, Options(), forecast_only=True)


def because(upgrade: Rehearsal, node: str = "") -> str | None:
    """Return the first reason why an upgrade is not possible, or not known to be: one about this
    node before others, with the remedy where it is about the pool of this node.
    """
    stops = sorted(
        (
            (stop.node != node, f"{stop.node}: {stop.reason}" if stop.node else stop.reason, stop)
            for stop in upgrade.stops
        ),
        key=lambda each: (each[0], bool(node) and not mentions(each[1], node)),
    )
    own = (
        f"{text}. {stop.remedy}"
        if node and not stop.node and mentions(text, node)
        else (text if others else stop.reason)
        for others, text, stop in stops
    )
    certain_first = sorted(upgrade.operators, key=lambda each: not each.holds)
    held = (each.reason for each in certain_first if each.holds is not False)
    reasons = () if upgrade.possible else (*own, *held, *upgrade.unseen)
    return next(iter(reasons), None)


def of_pools(upgrade: Rehearsal, node: str) -> tuple[str, ...]:
    """Return why a pool stops an upgrade, if that is about a node of it."""
    whole = (stop.reason for stop in upgrade.stops if not stop.node)
    return tuple(reason for reason in whole if mentions(reason, node))


def unread(cluster: Cluster) -> tuple[str, ...]:
    """Return what could not be read, so that it cannot be determined whether the update of the
    nodes completes.

    One line is enough for other VMs whose outcome is unknown.
    """
    found = rehearsal(cluster)
    if found.nodes_complete is not None:
        return ()
    kinds = tuple(what for what in found.unseen if by_resource(what.partition(" ")[0]) is not None)
    return kinds or ("whether an upgrade of the whole cluster completes",)
