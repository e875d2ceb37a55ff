"""Random sequences of admissions: what the webhook keeps,
against what it should know of the same objects.

``python -m tests.forecasts.outage.admission_sequences 1000`` plays that many sequences; a second
number is the first seed.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from random import Random
from typing import Any, Final

from tests.forecasts.outage import losses
from tests.forecasts.outage.losses import Manifest
from tests.kube.test_vm_ledger_feed import room_of
from virt_admit.engine import review
from virt_admit.engine.admission_review import Reply, Request
from virt_admit.forecasts.outage import failover, failover_demand, failover_room
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.outage.recent_starts import SECONDS, recent_starts
from virt_admit.forecasts.outage.tolerance import Tolerance
from virt_admit.kube import vm_ledger_feed
from virt_admit.kube.cache import ClusterCache, StoreState
from virt_admit.kube.stores import lookup_stores
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler.resources import CPU, MEMORY, PODS
from virt_admit.policy import parser
from virt_admit.rule import Action
from virt_admit.rules import load_rules
from virt_admit.serving.admitted_starts import RULE, AdmittedStarts

STEPS: Final = 14
SIZES: Final = ("1Gi", "2Gi", "5Gi", "8Gi", "16Gi")
RULES = load_rules().at_admission.where(lambda rule: rule.id == RULE)


class Sequence:
    """A live cluster of four nodes, the webhook, and the VMs that users write."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random, self.now = seed, Random(seed), 1000.0
        self.tolerance = Tolerance(nodes=self.random.choice((1, 1, 2)))
        params = f"tolerate: {{nodes: {self.tolerance.nodes}}}"
        text = f"extends: default\nrules: {{{RULE}: {{action: deny, params: {{{params}}}}}}}"
        self.policy = parser.parse(text.encode(), load_rules())
        self.starts = AdmittedStarts(lambda: self.now)
        self.live = ClusterCache(lookup_stores(load_rules().at_admission), "v1.36.3")
        vm_ledger_feed.follow(self.live)
        self.live.provide(recent_starts, self.starts.current, ())
        for store in self.live.stores.values():
            store.replace({}, StoreState.LISTED)
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.users: dict[str, Manifest] = {}
        """The VMs as they were admitted. Informers know them later."""
        self.admitted: dict[str, float] = {}
        """When a VM that has no pod yet was admitted as it is."""
        self.said: Counter[str] = Counter()
        for each in (losses.KUBEVIRT, *losses.NAMESPACES, *losses.nhc()):
            self.write(each)
        for number in range(1, 5):
            node = losses.node(f"n{number}", self.random.choice(("32Gi", "40Gi")))
            node["status"]["allocatable"]["ephemeral-storage"] = "100Gi"
            self.write(node)
            for each in losses.vm(
                f"old{number}", f"n{number}", self.random.choice(("4Gi", "12Gi", "16Gi"))
            ):
                self.write(each)

    # --- the cluster

    def write(self, obj: Manifest) -> None:
        self.objects[obj["kind"], obj["metadata"]["name"]] = obj
        store = self.live.stores.get(kinds.of(Object(obj)))  # type: ignore[arg-type]
        if store is not None:
            store.upsert(copy.deepcopy(obj))

    def remove(self, kind: str, name: str) -> None:
        obj = self.objects.pop((kind, name), None)
        store = self.live.stores.get(kinds.of(Object(obj))) if obj is not None else None  # type: ignore[arg-type]
        if store is not None:
            store.delete(obj)  # type: ignore[arg-type]

    def snapshot(self, *more: Manifest) -> Snapshot:
        known = {
            **self.objects,
            **{(each["kind"], each["metadata"]["name"]): each for each in more},
        }
        return Snapshot(
            map(Object, copy.deepcopy(list(known.values()))), ["*"], server_version="v1.36.3"
        )

    # --- users

    def machine(self, name: str, memory: str, strategy: str = "Always") -> Manifest:
        domain = {"memory": {"guest": memory}, "cpu": {"cores": 1}, "devices": {}}
        template = {"metadata": {}, "spec": {"domain": domain, "evictionStrategy": "None"}}
        spec = {"runStrategy": strategy, "template": template}
        return losses.manifest("kubevirt.io/v1", "VirtualMachine", name, "shop", spec=spec)

    def ask(self, name: str, new: Manifest | None, *, dry_run: bool = False) -> bool:
        """Review a change, compare what is said, and return whether it is accepted."""
        before = self.users.get(name)
        operation = "DELETE" if new is None else "UPDATE" if before else "CREATE"
        obj, old = (Object(copy.deepcopy(each)) if each else None for each in (new, before))
        request = Request(
            operation, VM, obj, old, name=name, namespace="shop", user="jane", dry_run=dry_run
        )
        wanted = self.expected(obj, old) if obj is not None else None
        response = review.review(request, RULES, self.live, self.policy)
        action = next((each.action for each in response.verdicts if each.rule.id == RULE), None)
        assert action == wanted, (self.seed, operation, name, action, wanted)
        self.starts.observe(Reply(b"", request, response), self.live)
        self.said[f"{operation} {action}"] += 1
        if not dry_run and action is Action.DENY and obj is not None:
            self.compare_with_the_loss(new or {})
        if dry_run or action is Action.DENY:
            return False
        self.note(name, old, obj)
        return True

    def expected(self, obj: Object, old: Object | None) -> Action | None:
        """Return what is to be said if everything that was admitted had its pods,
        without a node.
        """
        snapshot = self.snapshot()
        asked = failover_demand.demand(obj, old, snapshot)
        if asked is None:
            return None
        is_more = old is not None and not asked.number  # than it asked for when it was admitted
        others = [self.size(name) for name in self.pending() if is_more or name != obj.name]
        room = failover_room.room(snapshot)
        seen = failover.shortage(room, asked, {}, self.tolerance, snapshot)
        if seen is not None and seen.crosses:
            return Action.DENY if seen.seen else Action.WARN
        ahead: Counter[str] = Counter()
        for each in others:
            ahead.update(each)
        early = failover.shortage(room, asked, ahead, self.tolerance, snapshot) if others else None
        if early is not None and early.crosses:
            return Action.WARN
        if seen is not None:
            return Action.AUDIT
        only = failover.only_places(room, asked, snapshot)
        return Action.WARN if only is not None else None

    def pending(self) -> list[str]:
        """Return the VMs of the last minute whose pods do not exist."""
        return [name for name, since in self.admitted.items() if self.now - since < SECONDS]

    def size(self, name: str) -> Counter[str]:
        return Counter(failover_demand.size(Object(self.users[name]), self.snapshot()))

    def note(self, name: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            self.users.pop(name, None)
            self.admitted.pop(name, None)
            for kind, each in (
                ("VirtualMachine", name),
                ("VirtualMachineInstance", name),
                ("Pod", f"pod-{name}"),
            ):
                self.remove(kind, each)
            return
        self.users[name] = dict(new.data)
        has_pod = ("Pod", f"pod-{name}") in self.objects
        runs = new.at("spec", "runStrategy").text == "Always"
        if not runs or has_pod:
            self.admitted.pop(name, None)
        elif old is None or old.at("spec", "runStrategy").text != "Always":
            self.admitted[name] = self.now
        else:
            before, after = (
                Counter(failover_demand.size(each, self.snapshot())) for each in (old, new)
            )
            if after - before or (name in self.pending() and after != before):
                self.admitted[name] = self.now

    # --- controllers

    def proceed(self, name: str) -> None:
        """Let the next object of a VM appear: VM, VMI, pod, node."""
        vm = self.users[name]
        memory = str(self.size(name)[MEMORY])
        _vmi, *_, pod = losses.vm(name, "", memory)
        pod["metadata"]["name"] = f"pod-{name}"
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{self.size(name)[CPU]}m"
        vmi = {**_vmi, "spec": vm["spec"]["template"]["spec"], "status": {"phase": "Pending"}}
        if ("VirtualMachine", name) not in self.objects or self.objects[
            "VirtualMachine", name
        ] != vm:
            self.write(vm)
        elif vm["spec"]["runStrategy"] != "Always":
            for kind, each in (("VirtualMachineInstance", name), ("Pod", f"pod-{name}")):
                self.remove(kind, each)
        elif ("VirtualMachineInstance", name) not in self.objects:
            self.write(vmi)
        elif ("Pod", f"pod-{name}") not in self.objects:
            del pod["spec"]["nodeName"]
            pod["status"] = {"phase": "Pending"}
            self.write(pod)
            self.admitted.pop(name, None)
        elif "nodeName" not in self.objects["Pod", f"pod-{name}"]["spec"]:
            places = self.places(self.size(name))
            if places:
                pod = copy.deepcopy(self.objects["Pod", f"pod-{name}"])
                pod["spec"]["nodeName"] = self.random.choice(places)
                self.write(pod)
                self.write(
                    {**vmi, "status": {"phase": "Running", "nodeName": pod["spec"]["nodeName"]}}
                )

    def places(self, size: Counter[str]) -> list[str]:
        room = failover_room.room(self.snapshot())
        return [
            name
            for name in sorted(room.by_node())
            if all(room.amounts(key)[name].free >= size[key] for key in (MEMORY, CPU, PODS))
        ]

    # --- one step

    def step(self) -> None:
        chance, known = self.random.random(), sorted(self.users)
        if chance < 0.45 or not known:
            name, memory = (
                f"vm{len(self.users)}-{self.random.randrange(3)}",
                self.random.choice(SIZES),
            )
            strategy = "Halted" if self.random.random() < 0.1 else "Always"
            if name not in self.users:
                self.ask(
                    name, self.machine(name, memory, strategy), dry_run=self.random.random() < 0.2
                )
        elif chance < 0.75:
            self.proceed(self.random.choice(known))
        elif chance < 0.85:
            name = self.random.choice(known)
            changed = copy.deepcopy(self.users[name])
            if ("VirtualMachineInstance", name) not in self.objects:
                changed["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = (
                    self.random.choice(SIZES)
                )
            changed["spec"]["runStrategy"] = self.random.choice(("Always", "Always", "Halted"))
            self.ask(name, changed, dry_run=self.random.random() < 0.2)
        elif chance < 0.92:
            self.ask(self.random.choice(known), None, dry_run=self.random.random() < 0.2)
        else:
            self.now += self.random.choice((5, 30, 61))
        self.compare()

    def compare(self) -> None:
        """What is kept equals what is computed from scratch."""
        assert room_of(self.live) == room_of(self.snapshot()), self.seed
        room = failover_room.room(self.live)
        kept: Counter[str] = Counter()
        for start in self.starts.current():
            kept.update(failover_demand.outstanding(start, room.vms))
        missing: Counter[str] = Counter()
        for name in self.pending():
            missing.update(self.size(name))
        assert kept == missing, (self.seed, self.starts.current(), self.pending())

    def compare_with_the_loss(self, vm: Manifest) -> None:
        """Wherever kube-scheduler might start a refused VM,
        the cluster does not survive the loss any more.
        """
        name = vm["metadata"]["name"]
        size = Counter(failover_demand.size(Object(vm), self.snapshot()))
        for place in self.places(size):
            vmi, *_, pod = losses.vm(name, place, str(size[MEMORY]))
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{size[CPU]}m"
            pod["metadata"]["name"] = f"pod-{name}"
            vmi = {**vmi, "spec": vm["spec"]["template"]["spec"]}
            found = outages(Question(worst=self.tolerance.nodes), self.snapshot(vm, vmi, pod))
            assert found.survives is not True, (self.seed, name, place)
            self.said["a loss that a refused VM would not survive"] += 1


def play(seeds: range) -> Counter[str]:
    """Play sequences, and return how often each thing was said."""
    said: Counter[str] = Counter()
    for seed in seeds:
        sequence = Sequence(seed)
        for _ in range(STEPS):
            sequence.step()
        said.update(sequence.said)
    return said


def main(arguments: list[str]) -> Any:
    number, first = (int(each) for each in (*arguments, "0")[:2])
    said = play(range(first, first + number))
    print(
        f"{number:,} sequences of {STEPS} steps agree:",
        *(f"  {key}: {n:,}" for key, n in sorted(said.items())),
        sep="\n",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
