"""``make verify-scheduler COUNT=1000``: the model of kube-scheduler on many random clusters.

Exits with 1 if the model and kube-scheduler disagree in a way that ``docs/verification.md`` does
not describe.
"""

from __future__ import annotations

import sys

from tests.apiserver.binaries import Unavailable, scheduler_oracle
from tests.scheduler.comparison import compare, minimised
from tests.scheduler.seeds import DISAGREED

SHOWN = 3


def main(count: int, first: int) -> int:
    try:
        program = scheduler_oracle()
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 1
    result = compare(
        program,
        [
            *range(first, first + count),
            *(seed for seed in DISAGREED if not first <= seed < first + count),
        ],
    )
    print("\n".join(result.report()))
    for found in result.disagreements:
        print(found)
    for found in result.failures[:SHOWN]:
        print(f"\n{found}\n{minimised(program, found)}")
    print("\n".join(result.invalid))
    return 1 if result.failures or result.invalid else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
