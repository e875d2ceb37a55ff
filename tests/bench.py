"""``make bench``: what a decision costs, as ratios within one run. Absolute times say more of the machine than of us.

Each figure is the best of several repeats of CPU time; the yardstick is ``json.loads`` of the same bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from tests import large_cluster
from tests.forecasts.outage import losses
from tests.https.reviews import review, vm
from virt_admit.engine import review as engine
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.parser import load, parse
from virt_admit.policy.policy import Policy
from virt_admit.rules import load_rules

REPEATS = 7
SECONDS = 0.15
"""CPU seconds per repeat."""


def cpu(call: Callable[[], object]) -> float:
    """CPU microseconds of one call: the best of several repeats."""
    call()
    best = float("inf")
    for _ in range(REPEATS):
        start, count = time.process_time(), 0
        while (spent := time.process_time() - start) < SECONDS:
            call()
            count += 1
        best = min(best, spent / count)
    return best * 1e6


def big_vm(size: int) -> dict[str, object]:
    """A VM with four disks whose JSON has about ``size`` bytes, as managed fields and cloud-init fill real ones."""
    disks = [{"name": f"disk{n}", "disk": {"bus": "virtio"}} for n in range(4)]
    volumes = [{"name": f"disk{n}", "persistentVolumeClaim": {"claimName": f"claim{n}"}} for n in range(4)]
    template = {
        "domain": {"devices": {"disks": disks, "interfaces": [{"name": "default", "masquerade": {}}]}},
        "networks": [{"name": "default", "pod": {}}],
        "volumes": volumes,
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
    }
    obj = vm("big", template=template)
    managed = {f"f:field{n}": {".": {}, "f:name": {}} for n in range(max(size - len(json.dumps(obj)), 0) // 40)}
    obj["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Apply", "fieldsV1": managed}]
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


def reviews_on_500_nodes() -> Iterator[tuple[str, float, float, float]]:
    """Yield what reviews cost with the rule on failover capacity and without it, after a pod has moved, and the bound."""
    every = load_rules()
    cluster = large_cluster.live(every.at_admission, 25_000)
    on, off = (
        parse(f"extends: default\nrules: {{{RULE}: {{action: '{action}'}}}}".encode(), every)
        for action in ("audit", "off")
    )
    new = big_vm(10_000)
    new["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "4Gi"}  # type: ignore[index]
    edited = {**new, "metadata": {**new["metadata"], "labels": {"tier": "db"}}}  # type: ignore[dict-item]
    pods = [losses.deployed("app", f"node-{number:03}", "256Mi") for number in (1, 2)]
    store = large_cluster.store_of(cluster, pods[0])

    def move() -> None:
        pods.reverse()
        store.upsert(pods[0])

    def answered(text: bytes, policy: Policy) -> float:
        def answer() -> None:
            move()
            engine.answer(text, engine.review, every.at_admission, cluster, policy)

        return cpu(answer) - moved

    moved = cpu(move)
    for name, body, bound in (("a VM that starts", review(new), 2.5), ("an edited label", review(edited, new), 1.2)):
        text = json.dumps(body).encode()
        yield name, answered(text, on), answered(text, off), bound


def command_cpu(*arguments: str) -> float:
    """CPU microseconds of a new Python process with these arguments: the best of several repeats."""
    best = float("inf")
    for _ in range(REPEATS):
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode > 1:
            raise RuntimeError(f"{arguments} ended with exit code {process.returncode}")
        best = min(best, usage.ru_utime + usage.ru_stime)
    return best * 1e6


def manifests(number: int) -> str:
    """So many VMs in one YAML text."""
    return "".join(f"---\n{yaml.safe_dump({**big_vm(0), 'metadata': {'name': f'vm{n}'}})}" for n in range(number))


def check_cpu(number: int, jobs: int = 1) -> float:
    """CPU microseconds of ``check`` on one file with so many VMs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vms.yaml"
        file.write_text(manifests(number))
        return command_cpu("-m", "virt_admit", "check", "-q", "-j", str(jobs), str(file))


def main() -> int:
    every = load_rules()
    rules, policy = every.at_admission, load("default", every)
    failed = False

    def row(name: str, value: float, base: float, bound: float | None) -> None:
        nonlocal failed
        ratio = value / base
        wrong = bound is not None and ratio > bound
        failed = failed or wrong
        limit = f"<= {bound}" if bound else ""
        print(f"{name:58} {value:9.1f} us  {ratio:6.2f}  {limit}{'  TOO MUCH' if wrong else ''}")

    print(f"{len(rules)} rules ask at admission, {len(rules.by_kind[kinds.VM])} of them about virtual machines\n")
    print(f"{'':58} {'CPU':>12}  {'ratio':>6}  bound")
    for size in (4_000, 10_000, 32_000, 128_000):
        create = json.dumps(review(big_vm(size))).encode()
        update = json.dumps(review(big_vm(size // 2), vm("big"))).encode()
        loads = cpu(lambda body=create: json.loads(body))  # type: ignore[misc]
        print(f"json.loads of a review of {len(create):,} bytes: {loads:.1f} us")
        for name, body, decide in (
            ("validate CREATE", create, engine.review),
            ("mutate CREATE", create, engine.fix),
            ("validate UPDATE", update, engine.review),
            ("mutate UPDATE", update, engine.fix),
        ):
            spent = cpu(lambda body=body, decide=decide: engine.answer(body, decide, rules, NOTHING, policy))  # type: ignore[misc]
            row(f"  {name}", spent, loads, 8.0 if size == 10_000 else None)
    body = json.dumps(review(big_vm(10_000))).encode()
    few, many = claims(1_000), claims(100_000)
    spent_few = cpu(lambda: engine.answer(body, engine.review, rules, few, policy))
    row("look-ups among 1,000 claims", spent_few, spent_few, None)
    spent_many = cpu(lambda: engine.answer(body, engine.review, rules, many, policy))
    row("look-ups among 100,000 claims", spent_many, spent_few, 1.5)
    for name, spent, base, most in reviews_on_500_nodes():
        row(f"{name}, 500 nodes, failover rule on by off", spent, base, most)
    start, one = command_cpu("-c", "pass"), check_cpu(1)
    row("check of one VM, by the start of Python", one, start, 15)
    hundred, thousand = check_cpu(100) - one, check_cpu(1_000) - one
    row("one of 1,000 VMs in check, by one of 100", thousand / 999, hundred / 99, 2)
    text = manifests(100)
    loads = cpu(lambda: list(yaml.load_all(text, yaml.CSafeLoader)))
    row("check of 100 VMs, by PyYAML's C loader alone", hundred, loads, 4.5)
    row("check of 1,000 VMs in two processes, by one process", check_cpu(1_000, 2), thousand + one, 1.5)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
