"""The garbage collector of processes that hold a cluster in memory."""

from __future__ import annotations

import gc


def freeze_heap() -> None:
    """Collect all garbage, and let later collections skip what is left.

    A full collection of the judgements of 10,000 VMs takes two seconds, and may come in the middle of a request or of a
    change. Objects die by their reference counts in spite of this. Garbage in circles stays until the next call.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
