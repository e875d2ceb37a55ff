"""What the commands that compare random cases with upstream's own code share: the loop, its table
and their arguments.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.upstream.renderer import program, render

Given = dict[str, Any]


def compare(
    module: Path,
    makes: Mapping[Callable[[int], Given], Sequence[int]],
    asked: Callable[[Given], Given],
    differences: Callable[[Given, Mapping[str, Any]], Iterator[tuple[str, str]]],
) -> int:
    """Compare the cases of these seeds and print what differs. Returns the exit code."""
    compared: Counter[str] = Counter()
    different: Counter[str] = Counter()
    for make, seeds in makes.items():
        cases = list(map(make, seeds))
        for seed, given, answer in zip(
            seeds, cases, render(program(module), map(asked, cases)), strict=True
        ):
            for what, why in differences(given, answer):
                compared[what] += 1
                if why:
                    different[what] += 1
                    print(f"{make.__name__} {seed}: {what}: {why}", flush=True)
    return show(compared, different)


def show(compared: Counter[str], different: Counter[str]) -> int:
    """Print how many of each disagree. Returns the exit code."""
    for what, number in sorted(compared.items()):
        print(f"{number:6} {what}: {different[what]} disagree")
    return 1 if different else 0


def write(path: Path, runs: Iterable[Given]) -> None:
    """Write the runs that the tests replay."""
    path.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in runs))


def command(main: Callable[[int, int], int], record: Callable[[], None]) -> None:
    """Run a command: how many cases, and perhaps the first seed; or ``--record``."""
    if sys.argv[1:] == ["--record"]:
        record()
    else:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
