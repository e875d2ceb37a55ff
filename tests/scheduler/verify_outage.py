"""``make verify-outage COUNT=200``: who finds a place after the loss of nodes,
on many random clusters.

Exits with 1 if the forecast and kube-scheduler disagree.
"""

from __future__ import annotations

import sys

from tests.apiserver.binaries import Unavailable, scheduler_oracle
from tests.scheduler.losses import compare


def main(count: int, first: int) -> int:
    try:
        program = scheduler_oracle()
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 1
    result = compare(program, range(first, first + count))
    print("\n".join((*result.report(), *result.failures, *result.invalid)))
    return 1 if result.failures or result.invalid else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
