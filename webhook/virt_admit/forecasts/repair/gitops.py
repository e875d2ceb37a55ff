"""What to do about an object that is written by a tool which would revert a change of it."""

from __future__ import annotations

from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes.objects import Object


def hint(obj: Object) -> str:
    """Return who writes an object, and what to do about it; empty: nothing says a tool does."""
    writer = writers.of(obj)
    if writer is None:
        return ""
    return (
        f"{writer.tool} writes this object: change it in the repository, or the change is "
        "reverted. Pause the sync only for a data copy."
    )
