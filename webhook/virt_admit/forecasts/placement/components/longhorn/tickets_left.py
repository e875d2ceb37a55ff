"""Volumes of Longhorn that a ticket keeps attached to a node where nothing uses them.

Upgrades leave such tickets behind; a detach on Longhorn's page takes the ticket out, and nothing
else. Sources: longhorn/longhorn-manager:manager/volume.go#Detach; longhorn/longhorn#8339, #9535;
longhorn/website:content/kb/
troubleshooting-volume-cannot-attach-due-to-orphan-pending-node-id-or-longhorn-ui-ad-ticket.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.placement.components.longhorn import volume_users
from virt_admit.model.commands import about, argument, json_patch, shell, typed
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import LONGHORN_ATTACHMENT, NODE, POD, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find

READS: Final[Reads] = union(node_health.READS, volume_users.READS)
_BY_HAND: Final = "longhorn-api"
"""The type of the tickets that are made on Longhorn's page, or by its API."""


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
            f", which {silent}" if silent else "",
            typed(
                (f"detach the volume on Longhorn's page only once {on} is off; " if by_hand else "")
                + f"see whether {on} still uses the volume, since a guest may run on there",
                see,
            ),
        )
    if not _is_unused(volume, on, cluster):
        return "", typed(f"end what uses the volume on {on}", described)
    unused = ", where no pod uses it"
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


def _is_unused(volume: Object, on: str, cluster: Cluster) -> bool:
    """Return whether no pod of a node that reports has the claim of a volume, nor Kubernetes
    attached it there.
    """
    return (
        bool(volume_users.claim_of(volume)[1])
        and not any(unlisted(cluster, kind) for kind in (POD, VOLUME_ATTACHMENT))
        and not volume_users.is_used(volume.name, volume, on, cluster)
    )
