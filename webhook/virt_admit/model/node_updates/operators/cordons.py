"""What keeps new pods from a node, in words, whatever it is that did it."""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.messages import capital


class Cordon(NamedTuple):
    """What keeps new pods from a node."""

    by: str
    """Who did it, as in ``cordoned by X``; it may say for what."""
    waits: str = ""
    """What that waits for, in whole sentences. Empty: it does not say."""
    ends: bool | None = None
    """False: it does not end by itself. None: that is not known."""
    remedy: str = ""
    """What ends it, with a command. Empty: nothing is to be done."""
    uncordon: bool = False
    """Whether an uncordon by hand lasts. Where it does not, it is cordoned again,
    or what was begun is disturbed.
    """
    mark: str = ""
    """What on the node shows it."""
    quiet: bool = False
    """Whether the report about the node says it already."""
    by_hand: bool = False
    """Whether its remedy says when to uncordon the node by hand."""
    failed: bool = False
    """Whether what it is for has failed, so that it may not end by itself."""
    state: str = ""
    """What is done to a node that is only tainted, or deleted, as in ``is STATE``."""

    @property
    def closed(self) -> str:
        """What is done to the node, as in ``is cordoned by X``."""
        return self.state or f"cordoned by {self.by}"

    @property
    def reason(self) -> str:
        """What it waits for and whether it ends, in sentences; empty: not known."""
        stays = f"{'That' if self.waits else 'The cordon'} {STAYS}" if self.ends is False else ""
        return " ".join(filter(None, (self.waits, stays)))

    @property
    def words(self) -> str:
        """Everything about it in sentences, for the report about the node."""
        mark = f" ({self.mark})" if self.mark else ""
        by_hand = self.uncordon or self.by_hand or (self.state and self.remedy)
        keep = "" if by_hand else KEEP
        said = (f"This node is {self.closed}{mark}.", self.reason, keep, capital(self.remedy))
        return " ".join(filter(None, said))


KEEP: Final = "Do not uncordon it by hand meanwhile."
STAYS: Final = "does not end by itself."
