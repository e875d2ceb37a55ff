"""Our verdicts on VMs and VMIs against KubeVirt's own webhooks, controllers and virt-handler.

``python -m tests.upstream.admission 20000`` compares that many random objects; a second number is
the first seed.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.rule_results import result_of
from tests.upstream.admission_cases import case
from tests.upstream.renderer import ADMISSION, ask, program
from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Snapshot, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import expand, migratability
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.kubevirt.instances.migratability import Assessment, Migratable
from virt_admit.model.kubevirt.settings import configuration, invalid_configuration, versions
from virt_admit.model.lookups import ReviewCache
from virt_admit.rule import Action, Context, Rule
from virt_admit.rules import load_rules

UNDETERMINED: Final = "undetermined"
"""Our answer where we name something that we would have to know."""
_BATCH: Final = 4000
"""Cases in one run of the program, which takes seconds to start."""
_REASON: Final = re.compile(r"\b(\w+LiveMigratable): ")
_STRATEGY_RULES: Final = (
    "vm-run-strategy-missing",
    "vm-run-strategy-unknown",
    "vm-running-and-run-strategy",
)
_CAUSES: Final = {
    "RunStrategy must be specified": "vm-run-strategy-missing",
    "Running and RunStrategy are mutually exclusive": "vm-running-and-run-strategy",
    "Invalid RunStrategy": "vm-run-strategy-unknown",
}
_UNLISTED: Final = {"DisksNotLiveMigratable", "SecureExecutionNotLiveMigratable"}
"""Reasons that KubeVirt leaves out of its list of all reasons
(calculateLiveStorageMigrationCondition).
"""


class Comparison(NamedTuple):
    """One answer of ours and of KubeVirt."""

    what: str
    ours: Any
    theirs: Any


def compare(given: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Comparison]:
    """Yield all that a case compares."""
    cluster, obj = _cluster(given), Object(given["subject"])
    invalid = any(invalid_configuration.invalid_settings(Object(given["kubevirt"])))
    yield Comparison("configuration of KubeVirt is valid", not invalid, result["valid"])
    if invalid:  # KubeVirt keeps the last valid one, which nothing in the cluster shows
        return
    yield from _gates(cluster, result)
    yield from _admission(obj, cluster, result)
    if "condition" in result:
        running = Object(
            {**result["running"], "status": result["running"]["status"] | {"conditions": []}}
        )
        yield from _effective(obj, cluster, result["running"])
        yield from _migration("as written", migratability.assess(obj, cluster), result)
        yield from _migration("running", migratability.assess(running, cluster), result)
        yield from _eviction(obj, cluster, result)
        if not given["reported"]:
            yield from _drain(obj, cluster, result)


def _cluster(given: Mapping[str, Any]) -> Cluster:
    return Snapshot(map(Object, [given["kubevirt"], *given["objects"]]), complete=["*"])


def _gates(cluster: Cluster, result: Mapping[str, Any]) -> Iterator[Comparison]:
    for name, theirs in result["gates"].items():
        gate = versions.Gate[name]
        yield Comparison(
            f"gate {gate.gate}",
            _known(lambda gate=gate: versions.gate_is_on(cluster, gate)),
            theirs,
        )


def _known(ask: Any) -> Any:
    try:
        return ask()
    except Unseen:
        return UNDETERMINED


# --- virt-api -------------------------------------------------------------------------------------


def _admission(obj: Object, cluster: Cluster, result: Mapping[str, Any]) -> Iterator[Comparison]:
    found = {rule.id: _findings(rule, obj, cluster) for rule in load_rules().by_kind[kinds.of(obj)]}
    crash = "crash" in result
    # otherwise KubeVirt ends before the crash
    if crash or "condition" in result or not found["vm-crashes-kubevirt"]:
        yield Comparison("vm-crashes-kubevirt", bool(found["vm-crashes-kubevirt"]), crash)
    admission = result.get("vm") or result.get("vmi")
    if crash or not admission:
        return
    if admission["allowed"]:
        denied = sorted(rule for rule, actions in found.items() if Action.DENY in actions)
        yield Comparison("denied although KubeVirt admits it", denied, [])
    is_vm, judged = obj.kind == "VirtualMachine", admission["spec"]
    causes = judged if is_vm else admission.get("causes", [] if admission["allowed"] else None)
    if causes is not None:  # otherwise the admission ended before KubeVirt validated the spec
        ours = bool(found["vm-eviction-strategy-unknown"])
        yield Comparison("vm-eviction-strategy-unknown", ours, _own_strategy_refused(obj, causes))
    if judged is not None:
        theirs = {
            _CAUSES[start]
            for cause in judged
            for start in _CAUSES
            if cause["message"].startswith(start)
        }
        for rule in _STRATEGY_RULES:
            yield Comparison(rule, Action.DENY in found[rule], rule in theirs)


def _own_strategy_refused(obj: Object, causes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether KubeVirt refuses the eviction strategy of the object;
    the cluster's default is judged by another rule.
    """
    own = obj.at(
        *("spec", "template", "spec", "evictionStrategy")
        if obj.kind == "VirtualMachine"
        else ("spec", "evictionStrategy")
    )
    return own.present and any(cause.get("field") == str(own.path) for cause in causes)


def _findings(rule: Rule, obj: Object, cluster: Cluster) -> list[Action]:
    """Return the action of each finding. Rules with a target have none."""
    if rule.target:
        return []
    result = result_of(
        rule, obj, Context(cluster, rule.params, ReviewCache(cluster), kind=kinds.of(obj))
    )
    assert not result.error, result.error
    return [min(rule.action, finding.max_action) for finding in result.findings]


# --- the VMI that starts --------------------------------------------------------------------------


def _effective(obj: Object, cluster: Cluster, running: Mapping[str, Any]) -> Iterator[Comparison]:
    vmi, spec = expand.expand(obj, cluster), running["spec"]
    domain = spec["domain"]
    cpu = domain["cpu"]
    yield Comparison(
        "architecture", expand.architecture(vmi, cluster) or UNDETERMINED, spec["architecture"]
    )
    model = _known(lambda: vmi.cpu_model.field.text or configuration.default_cpu_model(cluster))
    if spec["architecture"] != "arm64":
        yield Comparison("CPU model", model, cpu["model"])
    names = sorted(str(feature["name"].value) for feature in vmi.cpu_features)
    yield Comparison(
        "CPU features", names, sorted(each["name"] for each in cpu.get("features") or ())
    )
    for key, ours in (("gpus", vmi.gpus), ("hostDevices", vmi.host_devices)):
        yield Comparison(key, ours.field.value or [], domain["devices"].get(key) or [])
    yield Comparison(
        "launchSecurity", vmi.launch_security.field.value, domain.get("launchSecurity")
    )
    theirs = (domain.get("features") or {}).get("hyperv", {}).get("reenlightenment") is not None
    yield Comparison("reenlightenment", vmi.reenlightenment.field.is_map, theirs)
    yield Comparison(
        "nodeSelector", vmi.node_selector.field.value or {}, spec.get("nodeSelector") or {}
    )
    opted_in = migratability.BRIDGE_OPT_IN in (running["metadata"].get("annotations") or {})
    yield Comparison("opt-in for bridge", vmi.annotated(migratability.BRIDGE_OPT_IN), opted_in)


def _migration(how: str, ours: Assessment, result: Mapping[str, Any]) -> Iterator[Comparison]:
    condition = result["condition"]
    first = ours.reasons[0].name if ours.reasons else ""
    answer = {Migratable.YES: "yes", Migratable.NO: first, Migratable.UNKNOWN: UNDETERMINED}[
        ours.migratable
    ]
    yield Comparison(f"first reason, {how}", answer, condition.get("reason") or "yes")
    every = {reason.name for reason in ours.reasons} - _UNLISTED
    yield Comparison(
        f"all reasons, {how}",
        sorted(every),
        sorted({*_REASON.findall(condition.get("others", ""))} - _UNLISTED),
    )


# --- drains ---------------------------------------------------------------------------------------


def _eviction(obj: Object, cluster: Cluster, result: Mapping[str, Any]) -> Iterator[Comparison]:
    strategy = result.get("strategy", "None")
    yield Comparison(
        "strategy in effect", _known(lambda: expand.strategy(obj, cluster).value), strategy
    )
    ours = vmi_evictions.eviction(Object(result["running"]), cluster)
    yield Comparison("eviction", ours, _effect(strategy, result["eviction"]))


def _drain(obj: Object, cluster: Cluster, result: Mapping[str, Any]) -> Iterator[Comparison]:
    """Yield the verdicts on an object that does not run yet."""
    migrates, strategy = result["condition"]["status"] == "True", result.get("strategy", "None")
    waits = strategy == "LiveMigrate" or (strategy == "LiveMigrateIfPossible" and migrates)
    yield Comparison(
        "drain waits for a migration",
        _known(lambda: vmi_evictions.awaits_migration(obj, ReviewCache(cluster))),
        waits,
    )
    rules = load_rules().by_id
    stuck = bool(_findings(rules["vm-live-migrate-not-migratable"], obj, cluster))
    yield Comparison(
        "vm-live-migrate-not-migratable", stuck, strategy == "LiveMigrate" and not migrates
    )
    run_strategy = _run_strategy(obj)
    if run_strategy not in (None, "Halted"):
        stopped = bool(_findings(rules["vm-shutdown-on-drain"], obj, cluster))
        yield Comparison("vm-shutdown-on-drain", stopped, result["eviction"]["allowed"])


def _run_strategy(obj: Object) -> str | None:
    """Return the run strategy of an admitted VM; None for a VMI."""
    running = {True: "Always", False: "Halted"}.get(obj.at("spec", "running").value)
    return obj.at("spec", "runStrategy").text or running


def _effect(strategy: str, eviction: Mapping[str, bool]) -> Eviction:
    if eviction["marked"]:
        return Eviction.WAITS if strategy == "External" else Eviction.MIGRATES
    return Eviction.SHUTS_DOWN if eviction["allowed"] else Eviction.REFUSED


# --- the report -----------------------------------------------------------------------------------


@dataclass
class Report:
    """What has been compared so far."""

    cases: int = 0
    admitted: int = 0
    agree: Counter[str] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)
    """Where our answer is that something is missing."""
    differ: dict[str, list[tuple[int, Comparison]]] = field(default_factory=dict)

    def add(self, seed: int, found: Iterable[Comparison]) -> None:
        for each in found:
            if each.ours == each.theirs:
                self.agree[each.what] += 1
            elif each.ours == UNDETERMINED:
                self.open[each.what] += 1
            else:
                self.differ.setdefault(each.what, []).append((seed, each))

    def print(self, cases: str = "objects, of which KubeVirt starts") -> None:
        print(f"{self.cases} {cases} {self.admitted}")
        for what in sorted({*self.agree, *self.open, *self.differ}):
            wrong = self.differ.get(what, [])
            left = f", {self.open[what]} undetermined" if self.open[what] else ""
            print(f"{what}: {self.agree[what]} agree{left}, {len(wrong)} differ")
            for seed, each in wrong[:3]:
                print(f"  seed {seed}: ours {each.ours!r}, KubeVirt's {each.theirs!r}")
        total, agree = sum(map(len, self.differ.values())), sum(self.agree.values())
        print(
            f"{agree + total + sum(self.open.values())} comparisons: {agree} agree, {total} differ"
        )


def verify(binary: Path, seeds: range) -> Report:
    """Compare the cases of these seeds."""
    report = Report()
    for start in range(seeds.start, seeds.stop, _BATCH):
        some = range(start, min(start + _BATCH, seeds.stop))
        cases = [case(seed) for seed in some]
        for seed, given, result in zip(some, cases, ask(binary, cases), strict=True):
            report.cases += 1
            report.admitted += "condition" in result
            report.add(seed, compare(given, result))
    return report


def main(count: int, first: int = 0) -> int:
    """Compare, print a summary and return the number of differences."""
    report = verify(program(ADMISSION), range(first, first + count))
    report.print()
    return sum(map(len, report.differ.values()))


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
