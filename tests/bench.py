"""``make bench``: what a decision costs, as ratios within one run.

Absolute times say more of the machine than of us.

Each figure is CPU time divided by that of a peer, such as ``json.loads`` of the same bytes,
measured by turns. Each ratio is compared with the one in ``docs/verification.md``;
``make bench SAVE=1`` replaces that table.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from tests import large_cluster
from tests.forecasts.outage import losses
from tests.https.reviews import review, vm
from virt_admit.engine import review as engine
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.parser import load, parse
from virt_admit.rules import load_rules
from virt_admit.serving.heap import freeze_heap

REPEATS = 7
SECONDS = 0.15
"""CPU seconds of a figure, each time that it is measured."""


def cpu(call: Callable[[], object], seconds: float = SECONDS) -> float:
    """CPU microseconds of one call, on average."""
    start, count = time.process_time(), 0
    while (spent := time.process_time() - start) < seconds:
        call()
        count += 1
    return spent / count * 1e6


def by_turns(measure: Callable[[], float], peer: Callable[[], float]) -> tuple[float, float]:
    """Return two figures that were measured by turns: those of the pair with the median ratio.

    A machine may become slower from one second to the next, for both.
    """
    measure(), peer()  # what is computed once
    pairs = sorted(
        ((measure(), peer()) for _ in range(REPEATS)), key=lambda pair: pair[0] / pair[1]
    )
    return pairs[REPEATS // 2]


def big_vm(size: int) -> dict[str, object]:
    """A VM with four disks whose JSON has about ``size`` bytes,
    as managed fields and cloud-init fill real ones.
    """
    disks = [{"name": f"disk{n}", "disk": {"bus": "virtio"}} for n in range(4)]
    volumes = [
        {"name": f"disk{n}", "persistentVolumeClaim": {"claimName": f"claim{n}"}} for n in range(4)
    ]
    template = {
        "domain": {
            "devices": {"disks": disks, "interfaces": [{"name": "default", "masquerade": {}}]}
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": volumes,
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
    }
    obj = vm("big", template=template)
    managed = {
        f"f:field{n}": {".": {}, "f:name": {}}
        for n in range(max(size - len(json.dumps(obj)), 0) // 40)
    }
    obj["metadata"]["managedFields"] = [
        {"manager": "kubectl", "operation": "Apply", "fieldsV1": managed}
    ]
    return obj


def claims(number: int) -> Snapshot:
    """A cluster with so many claims, among them those of ``big_vm``."""
    items = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"claim{n}", "namespace": "shop"},
            "spec": {"accessModes": ["ReadWriteMany"]},
        }
        for n in range(number)
    ]
    return Snapshot(map(Object, items), complete=["*"])


RULE = "vm-takes-failover-capacity"
REVIEWS: Final = 3_000
"""Of each kind. Their median leaves out the moments in which the machine does something else."""


def reviews_on_500_nodes() -> Iterator[tuple[str, float, float, float]]:
    """Yield what reviews cost with the rule on failover capacity and without it, and the bound."""
    every = load_rules()
    rules = every.at_admission
    cluster = large_cluster.live(rules, 25_000)
    freeze_heap()  # as the webhook does
    policies = [
        parse(f"extends: default\nrules: {{{RULE}: {{action: '{action}'}}}}".encode(), every)
        for action in ("audit", "off")
    ]
    new = big_vm(10_000)
    new["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "4Gi"}  # type: ignore[index]
    edited = {**new, "metadata": {**new["metadata"], "labels": {"tier": "db"}}}  # type: ignore[dict-item]
    pods = [losses.deployed("app", f"node-{number:03}", "256Mi") for number in (1, 2)]
    store = large_cluster.store_of(cluster, pods[0])

    def move() -> None:
        pods.reverse()
        store.upsert(pods[0])

    def answers(text: bytes, before: Callable[[], None]) -> list[float]:
        spent: list[list[float]] = [[] for _ in policies]
        for _ in range(REVIEWS):
            for policy, each in zip(policies, spent, strict=True):
                before()
                start = time.perf_counter()
                engine.answer(text, engine.review, rules, cluster, policy)
                each.append(time.perf_counter() - start)
        return [statistics.median(each) * 1e6 for each in spent]

    text = json.dumps(review(new)).encode()
    yield "a VM that starts", *answers(text, lambda: None), 1.25
    yield "a VM that starts after a pod moved", *answers(text, move), 1.4
    yield "an edited label", *answers(json.dumps(review(edited, new)).encode(), move), 1.1


def command_cpu(*arguments: str) -> float:
    """CPU microseconds of a new Python process with these arguments."""
    return command_cost(*arguments)[0]


def command_cost(*arguments: str) -> tuple[float, int]:
    """CPU microseconds of a new Python process with these arguments, and its most memory in KiB."""
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode > 1:
        raise RuntimeError(f"{arguments} ended with exit code {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1e6, usage.ru_maxrss


def manifests(number: int) -> str:
    """So many VMs in one YAML text."""
    return "".join(
        f"---\n{yaml.safe_dump({**big_vm(0), 'metadata': {'name': f'vm{n}'}})}"
        for n in range(number)
    )


def check_cpu(file: Path, jobs: int = 1) -> float:
    """CPU microseconds of ``check`` on a file."""
    return command_cpu("-m", "virt_admit", "check", "-q", "-j", str(jobs), str(file))


class Ratio(NamedTuple):
    """What something costs, divided by what its peer costs."""

    name: str
    cost: float
    """CPU microseconds."""
    peer: float
    bound: float | None = None
    """More is a failure."""

    @property
    def value(self) -> float:
        return round(self.cost / self.peer, 2)

    @property
    def is_too_much(self) -> bool:
        return self.bound is not None and self.value > self.bound


def ratios() -> Iterator[Ratio]:
    every = load_rules()
    rules, policy = every.at_admission, load("default", every)
    for size in (4_000, 10_000, 32_000, 128_000):
        create = json.dumps(review(big_vm(size))).encode()
        update = json.dumps(review(big_vm(size // 2), vm("big"))).encode()
        for name, body, decide in (
            ("validate CREATE", create, engine.review),
            ("mutate CREATE", create, engine.fix),
            ("validate UPDATE", update, engine.review),
            ("mutate UPDATE", update, engine.fix),
        ):
            spent = by_turns(
                partial(cpu, partial(engine.answer, body, decide, rules, NOTHING, policy)),
                partial(cpu, partial(json.loads, create)),
            )
            yield Ratio(
                f"{name} of {size // 1_000} kB, by json.loads of it",
                *spent,
                8.0 if size == 10_000 else None,
            )
    body = json.dumps(review(big_vm(10_000))).encode()
    many, few = (
        partial(cpu, partial(engine.answer, body, engine.review, rules, claims(number), policy))
        for number in (100_000, 1_000)
    )
    yield Ratio("look-ups among 100,000 claims, by 1,000", *by_turns(many, few), 1.5)
    for name, on, off, most in reviews_on_500_nodes():
        yield Ratio(f"{name}, 500 nodes, failover rule on by off", on, off, most)
    with tempfile.TemporaryDirectory() as folder:
        yield from checks(Path(folder))
        yield from outage(Path(folder) / "cluster.json")


def outage(file: Path) -> Iterator[Ratio]:
    """Yield what the loss of any one of 500 nodes with 40,000 pods costs:
    about 10 s and less than 400 MiB.
    """
    file.write_text(json.dumps(large_cluster.saved(40_000)))
    spent, memory = command_cost(
        "-m", "virt_admit", "outage", "--worst", "1", "-j1", "--summary", "--cluster", str(file)
    )
    # in a process of its own: in this one the collector is set as in the webhook, which halves it
    peer = command_cpu(
        "-c",
        "import json, pathlib, sys; json.loads(pathlib.Path(sys.argv[1]).read_text())",
        str(file),
    )
    yield Ratio("outage --worst 1, 500 nodes, 40,000 pods, by json.loads of it", spent, peer, 9)
    yield Ratio("its memory in KiB, by 400 MiB", memory, 400 * 1024, 1)


def checks(folder: Path) -> Iterator[Ratio]:
    files = {number: folder / f"{number}.yaml" for number in (1, 100, 1_000)}
    for number, file in files.items():
        file.write_text(manifests(number))
    one, hundred, thousand = (partial(check_cpu, file) for file in files.values())
    text = manifests(100)
    yield Ratio(
        "check of one VM, by the start of Python",
        *by_turns(one, partial(command_cpu, "-c", "pass")),
        15,
    )
    large, small = by_turns(lambda: thousand() - one(), lambda: hundred() - one())
    yield Ratio("one of 1,000 VMs in check, by one of 100", large / 999, small / 99, 2)
    loads = partial(cpu, lambda: list(yaml.load_all(text, yaml.CSafeLoader)))
    yield Ratio(
        "check of 100 VMs, by PyYAML's C loader alone",
        *by_turns(lambda: hundred() - one(), loads),
        4.5,
    )
    two = by_turns(partial(check_cpu, files[1_000], 2), thousand)
    yield Ratio("check of 1,000 VMs in two processes, by one process", *two, 1.5)


PAGE: Final = Path(__file__).parents[1] / "docs" / "verification.md"
_TABLE: Final = re.compile(r"(?<=\| figure \| ratio \| bound \|\n\|---\|---\|---\|\n)(?:\|.*\n)*")
NOISE: Final = 1.2
"""Repeated runs on a machine that does nothing else differ by so much."""


def stored(page: str) -> dict[str, float]:
    """Return the ratios in the table of the page, by name."""
    table = _TABLE.search(page)
    lines = table[0].splitlines() if table else []
    return {
        name.strip(): float(value)
        for name, value, _ in (line.strip("| ").split("|") for line in lines)
    }


def with_table(page: str, found: Iterable[Ratio]) -> str:
    """Return the page with these ratios in its table."""
    lines = (f"| {each.name} | {each.value:.2f} | {each.bound or '-'} |\n" for each in found)
    text = "".join(lines)
    return _TABLE.sub(lambda _: text, page, count=1)


def slower(found: Iterable[Ratio], before: Mapping[str, float]) -> list[str]:
    """Return the names of the ratios that have grown by more than chance."""
    return [each.name for each in found if each.value > before.get(each.name, float("inf")) * NOISE]


def main(arguments: Sequence[str]) -> int:
    page = PAGE.read_text()
    before, found = stored(page), []
    print(f"{'':62} {'CPU':>12}  {'ratio':>6} {'before':>6}  bound")
    for each in ratios():
        found.append(each)
        limit = f"<= {each.bound}" if each.bound else ""
        mark = "  TOO MUCH" if each.is_too_much else "  slower" if slower([each], before) else ""
        old = before.get(each.name, float("nan"))
        print(
            f"{each.name:62} {each.cost:9.1f} us  {each.value:6.2f} {old:6.2f}  {limit}{mark}",
            flush=True,
        )
    worse = slower(found, before)
    print(f"slower than in {PAGE.name}: {'; '.join(worse) or 'nothing'}")
    if "--save" in arguments:
        PAGE.write_text(with_table(page, found))
    return int(any(each.is_too_much for each in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
