"""Volumes of Longhorn that a ticket keeps attached to a node where nothing uses them.

Upgrades leave such tickets behind; a detach on Longhorn's page takes the ticket out, and nothing
else. Sources: longhorn/longhorn-manager:manager/volume.go#Detach; longhorn/longhorn#8339, #9535;
longhorn/website:content/kb/
troubleshooting-volume-cannot-attach-due-to-orphan-pending-node-id-or-longhorn-ui-ad-ticket.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import ticket_backups, volume_users
from virt_admit.model.commands import about, argument, json_patch, shell, typed
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import LONGHORN_ATTACHMENT, NODE, POD, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = union(
    node_health.READS,
    ticket_backups.READS,
    volume_users.READS,
    {LONGHORN_ATTACHMENT: ("spec", "status.attachmentTicketStatuses")},
)
_BY_HAND: Final = "longhorn-api"
"""The type of the tickets that are made on Longhorn's page, or by its API."""
_NAMELESS: Final = "with an empty id"
"""The key of those that Longhorn's API makes for a maintenance."""
_LONGEST: Final = 120


def kept(
    volume: Object, on: str, attachment: Object, tickets: Mapping[str, Field], cluster: Cluster
) -> tuple[str, str]:
    """Return what is known of the node where these tickets keep a volume, ``, where no pod uses
    it`` (empty: one may), and what takes the volume off that node.
    """
    described = about("describe", attachment, LONGHORN_ATTACHMENT)
    by_hand = all(each["type"].text == _BY_HAND for each in tickets.values())
    if find(cluster, NODE, "", on) is None or node_health.silence_now(on, cluster):
        silent = node_health.silent_for(on, cluster)
        see = shell("virt-admit", "explain", argument(f"node/{on}")) if silent else described
        return (
            f", which {silent}" if silent else _gone(on, cluster),
            typed(
                (f"detach the volume on Longhorn's page only once {on} is off; " if by_hand else "")
                + f"see whether {on} still uses the volume, since a guest may run on there",
                see,
            ),
        )
    if not _is_unused(volume, on, cluster):
        return "", typed(f"end what uses the volume on {on}", described)
    unused = ", where no pod uses it"
    backup = ticket_backups.of_tickets(tickets, attachment.namespace, cluster)
    if backup is not None:
        return f"{unused}: {backup.reason}", backup.remedy
    if not by_hand:
        return unused, typed(f"see why it is not detached from {on}", described)
    steps = [Patch("remove", Path("spec", "attachmentTickets", each)) for each in tickets]
    return (
        unused,
        typed(
            "take that ticket out, with a detach on Longhorn's page or with this patch, unless an "
            f"administrator works with the volume on {on} itself",
            json_patch(LONGHORN_ATTACHMENT, attachment.name, attachment.namespace, steps),
        ),
    )


def _gone(node: str, cluster: Cluster) -> str:
    return ", a node that does not exist" if is_absent(cluster, NODE, "", node) else ""


def _is_unused(volume: Object, on: str, cluster: Cluster) -> bool:
    """Return whether no pod of a node that reports has the claim of a volume, nor Kubernetes
    attached it there.
    """
    return (
        bool(volume_users.claim_of(volume)[1])
        and not any(unlisted(cluster, kind) for kind in (POD, VOLUME_ATTACHMENT))
        and not volume_users.is_used(volume.name, volume, on, cluster)
    )


def of_ticket(volume: Object, node: str, cluster: Cluster) -> HeldVolume | None:
    """Return what Longhorn says of the attachment to a node,
    and who keeps the volume on another node.
    """
    attachment = next(iter(volume_users.tickets_of(volume.name, cluster)), None)
    if attachment is None:
        return None
    tickets = dict(attachment.at("spec", "attachmentTickets").entries())
    states = attachment.at("status", "attachmentTicketStatuses")
    said = next(
        (
            words
            for key, each in tickets.items()
            if each["nodeID"].text == node and (words := _said(states[key]))
        ),
        "",
    )
    here = volume.at("status", "currentNodeID").text
    keeping = {key: each for key, each in tickets.items() if here and each["nodeID"].text == here}
    others = sorted(f"{key or _NAMELESS} ({each['type'].text})" for key, each in keeping.items())
    if not said or (here != node and not others and here):
        return None
    there = volume.at("spec", "migrationNodeID").text
    if here and there and node not in (here, there):
        words = (
            f"Longhorn still migrates it from {here} to {there}, and starts no other migration of "
            "it before that has ended"
        )
        ways = f"end that first: see which pod of the VM stays on {here} or {there}"
        return HeldVolume(words, typed(ways, about("describe", attachment, LONGHORN_ATTACHMENT)))
    if not here or here == node:
        see = typed("see why", about("describe", attachment, LONGHORN_ATTACHMENT))
        return HeldVolume(f"Longhorn says {said}", see)
    where, remedy = kept(volume, here, attachment, keeping, cluster)
    return HeldVolume(
        f"Longhorn says {said}; ticket {names(others)} keeps it on {here}{where}", remedy
    )


def _said(status: Field) -> str:
    """Return why a ticket is not satisfied; empty: it is, or nothing says so."""
    if status["satisfied"].boolean is not False:
        return ""
    own = (each for each in status["conditions"].items() if each["type"].text == "Satisfied")
    said = (each["message"] for each in own if each["status"].text == "False")
    return next((cut_middle(each.words, _LONGEST) for each in said if each.text), "")
