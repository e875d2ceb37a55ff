"""Backups of Longhorn whose ticket keeps a volume attached.

Longhorn's backup controller asks for the attachment until its Backup has ended, and makes its
ticket again as long as the Backup exists. A Backup whose snapshot is gone stays Pending: old
releases try it without end. Its deletion takes the ticket out. Sources:
longhorn/longhorn-manager:controller/backup_controller.go#reconcile #checkMonitor
#handleAttachmentTicketDeletion; k8s/pkg/apis/longhorn/v1beta2/volumeattachment.go
#GetAttachmentTicketID; longhorn/longhorn#6652.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LONGHORN_BACKUP
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem

READS: Final[Reads] = {
    LONGHORN_BACKUP: (
        "metadata.creationTimestamp",
        "status.error",
        "status.messages",
        "status.progress",
        "status.state",
    )
}
_TYPE: Final = "backup-controller"
_WITHOUT_SNAPSHOT: Final = "Failed to get the Snapshot"
_PATIENCE: Final = timedelta(minutes=15)
"""Longhorn may see a snapshot late; releases that count their tries give up within ten minutes."""
_LONGEST: Final = 120


def of_tickets(tickets: Mapping[str, Field], namespace: str, cluster: Cluster) -> Problem | None:
    """Return which Backup keeps a volume attached by its ticket, its state, and what ends that;
    None: no Backup that is known does.
    """
    for key, ticket in sorted(tickets.items()):
        name = key.removeprefix(f"{_TYPE}-")
        backup = find(cluster, LONGHORN_BACKUP, namespace, name)
        if ticket["type"].text == _TYPE and name != key and backup is not None:
            return _of(backup, cluster)
    return None


def _of(backup: Object, cluster: Cluster) -> Problem:
    status, age = backup["status"], clock.age(backup, cluster)
    said = status["error"].text or next(
        (each.words for key in ("error", "info") if (each := status["messages"][key]).text), ""
    )
    state = "is being deleted" if backup.deleted else f"is {status['state'].text or 'not begun'}"
    progress = status["progress"].integer
    far = f" at {progress} %" if status["state"].text == "InProgress" and progress else ""
    lasts = f", made {clock.duration(age)} ago" if age is not None else ""
    reason = (
        f"it is the ticket of Backup {backup.name}, which {state}{far}{lasts}"
        f"{f': {cut_middle(said, _LONGEST)}' if said else ''}"
    )
    lost = status["state"].text == "Pending" and said.startswith(_WITHOUT_SNAPSHOT)
    if lost and not backup.deleted and age is not None and age >= _PATIENCE:
        return Problem(
            reason,
            typed(
                "delete that Backup, not the ticket, which Longhorn makes again (it has stored "
                "nothing, and cannot without its snapshot)",
                about("delete", backup, LONGHORN_BACKUP),
            ),
        )
    see = about("describe", backup, LONGHORN_BACKUP)
    return Problem(
        reason,
        typed("let that Backup end, with which its ticket goes, or see what it waits for", see),
    )
