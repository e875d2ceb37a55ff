"""``python -m tests.fuzz MINUTES [TARGET [SEED]]``: fuzz for so many minutes,
or run one input of one target again.

Inputs that failed are kept in ``.fuzz`` and are tried first at the next run, until they pass.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.targets import TARGETS, case
from tests.paths import ROOT

FAILED = Path(ROOT, ".fuzz")


def failed() -> list[tuple[str, int]]:
    """Return the inputs that failed in earlier runs."""
    names = [file.name.rpartition("-") for file in sorted(FAILED.glob("*-*"))]
    return [(name, int(seed)) for name, _, seed in names if name in TARGETS and seed.isdigit()]


def passes(name: str, seed: int) -> bool:
    """Run one input; keep it if it fails, forget it if it passes."""
    kept = FAILED / f"{name}-{seed}"
    try:
        case(name, seed)
    except Exception:
        FAILED.mkdir(exist_ok=True)
        kept.write_text(traceback.format_exc())
        print(f"FAILED: python -m tests.fuzz 0 {name} {seed}\n{traceback.format_exc()}", flush=True)
        return False
    kept.unlink(missing_ok=True)
    return True


def main(minutes: float, only: str = "", seed: str = "") -> int:
    if seed:
        return 0 if passes(only, int(seed)) else 1
    names = [only] if only else list(TARGETS)
    end = time.monotonic() + 60 * minutes
    start = random.SystemRandom().randrange(10**9)
    faults = sum(not passes(name, number) for name, number in failed())
    done: Counter[str] = Counter()
    for number in itertools.count(start):
        for name in names:
            faults += not passes(name, number)
            done[name] += 1
        if time.monotonic() > end or faults > 20:
            break
    print("; ".join(f"{name}: {count}" for name, count in done.items()))
    print(f"{sum(done.values())} inputs from seed {start} on, {faults} failed", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *sys.argv[2:]))
