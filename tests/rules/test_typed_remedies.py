"""Remedies that can be typed: findings about objects of a cluster, and what ``drain`` says,
have a command.
"""

import json
import re
import shlex

import pytest

from tests.remedies import faults
from tests.rules.cases import read
from tests.rules.test_rules import ask
from virt_admit.engine.admission_review import Request, Response, Verdict
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.repair.found_problems import of_plan
from virt_admit.model.evidence.writes import fleet_objects
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.json_patch import apply
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import expand
from virt_admit.model.problems import Problem, ProblemCause, problem_of
from virt_admit.reports.findings.commands import command
from virt_admit.reports.findings.report import ObjectResult, rows_of, without_object
from virt_admit.reports.remedy_steps import steps
from virt_admit.rule import Finding
from virt_admit.rules import load_rules
from virt_admit.rules.vm import vm_start_stuck

CASES = [pytest.param(*case, id=f"{case[0].id}/{case[1]['name']}") for case in read(load_rules())]
MOST_WITHOUT = 2
"""Remedies of ``drain`` in all cases that name an action and have no command. It only falls."""
_ACTION = re.compile(
    r"\b(?:add|set|repair|raise|write|change|remove|restart|stop|wait|let|make|choose|use|see)\b",
    re.I,
)
_HALF = re.compile(r"\b(?:repair|fix|remove) (?:that|it|this)(?: error| reason)?\b(?!s)", re.I)


def rows(rule, case):
    """The rows of ``scan`` for the findings of a case."""
    obj = Object(case["object"])
    found, _ = ask(rule, case)
    request = Request("CREATE", kinds.of(obj) or rule.kinds[0], obj, obj.name, obj.namespace)
    verdicts = tuple(Verdict(rule, finding, rule.action) for finding in found.findings)
    return rows_of(ObjectResult(without_object(request), Response(verdicts=verdicts)))


def typed_about(text, name, namespace):
    """Whether a text is a line for a shell about an object:
    no character of a name is read by the shell.
    """
    words = shlex.split(text)
    if words[:2] == ["virt-admit", "explain"]:
        name = f"{words[2].partition('/')[0]}/{name}"
    return (
        words[0] in ("kubectl", "virtctl", "virt-admit")
        and name in words
        and (not namespace or namespace in words)
    )


def changes_nothing(row, obj, cluster):
    """Whether the fix of a row leaves its object as it is,
    or its command sets the eviction strategy in force.
    """
    if row.fix:
        return apply(obj, row.fix).data == obj.data
    words = shlex.split(command(row))
    if "--type=merge" not in words:
        return False
    template = json.loads(words[-1]).get("spec", {}).get("template")
    if template is None or obj.name not in words:  # a setting of the cluster, or another object
        return False
    strategy = template["spec"].get("evictionStrategy")
    return strategy is not None and strategy == expand.strategy(obj, cluster).value


@pytest.fixture(scope="module")
def told():
    """Each rule and case, with the rows of ``scan``."""
    cases = (param.values for param in CASES)
    return [(rule, case, list(rows(rule, case))) for rule, case in cases]


@pytest.fixture(scope="module")
def all_remedies():
    """The remedies of ``drain`` in all cases."""
    return {remedy for param in CASES for remedy in remedies(param.values[1])}


def test_no_fix_and_no_command_changes_nothing(told):
    seen, idle = 0, []
    for rule, case, found in told:
        obj, cluster = Object(case["object"]), Snapshot(map(Object, case.get("cluster", ())), ["*"])
        for row in found:
            seen += " patch " in command(row)
            if changes_nothing(row, obj, cluster):
                idle.append((rule.id, case["name"], command(row)))
    assert seen > 50
    assert not idle


TAINT = "kubectl taint nodes a k=v:NoSchedule"
LOOK = "kubectl logs agent -n kube-system"


@pytest.mark.parametrize(
    ("typed", "message", "shown"),
    [
        (TAINT, "not fenced. Make sure that a is off.", "virt-admit explain vm/db -n shop"),
        (TAINT, "not fenced. Make sure that a is off; then taint it.", TAINT),
        (LOOK, "not fenced. Make sure that a is off.", LOOK),
    ],
)
def test_the_command_of_a_step_that_a_message_leaves_out_is_not_shown(typed, message, shown):
    vm = Object({"kind": "VirtualMachine", "metadata": {"name": "db", "namespace": "shop"}})
    stuck = Problem("not fenced", f"make sure that a is off; then taint it: {typed}")
    assert vm_start_stuck.shown_command(stuck, message, vm) == shown


def test_a_remedy_is_cut_to_its_first_step_and_not_inside_of_a_parenthesis():
    step = "Ask for the device"
    stuck = Problem(
        "x" * 420, f"{step[:1].lower()}{step[1:]} (on one cloud, by a tag, or in words)"
    )
    assert vm_start_stuck._message(stuck, 480).endswith(f"x. {step}.")


WHERE_TO_LOOK = {
    "health-check-refuses-now": (
        r"(virt-admit explain (mhc|nhc)/|kubectl describe "
        r"machines\.cluster\.x-k8s\.io |kubectl annotate kubeadmcontrolplane )\S+"
    ),
    "node-machine-deletion-held": r"virt-admit explain node/\S+",
    "cluster-update-held": (
        r"virt-admit upgrade|kubectl (describe clusteroperator|annotate pvc|logs) "
    ),
} | dict.fromkeys(
    ("workload-update-evict-not-restarted", "nm-vm-will-stop"),
    r"kubectl (edit vm|describe vmi) \S+ -n \S+$",  # their run strategy is to be set
)


@pytest.mark.parametrize("rule_id", WHERE_TO_LOOK)
def test_a_rule_names_its_command(rule_id):
    """An edit of the object that the finding is about would not help."""
    found = [
        command(row)
        for rule, case in (each.values for each in CASES)
        if rule.id == rule_id
        for row in rows(rule, case)
    ]
    assert found
    assert not [each for each in found if not re.match(WHERE_TO_LOOK[rule_id], each)], found


def test_a_vm_whose_strategy_waits_for_a_restart_is_restarted():
    vmi = Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": "db"},
        },
        "shop",
    )
    rule = load_rules().by_id["vmi-not-migratable"]
    finding = Finding(
        vmi.metadata["name"].path,
        "it cannot migrate",
        problem=problem_of("DisksNotLiveMigratable", vmi),
    )
    request = Request("CREATE", kinds.VMI, vmi, vmi.name, vmi.namespace)
    response = Response(verdicts=(Verdict(rule, finding, rule.action),))
    (row,) = rows_of(ObjectResult(without_object(request), response))
    shown = row._replace(others=("VirtualMachine/shop/db [vm-shutdown-on-drain]",))

    assert command(shown) == "virtctl restart db -n shop"


def test_every_finding_about_a_named_object_has_a_command(told):
    without = []
    for rule, case, found in told:
        if rule.in_scan and "old" not in case and case.get("operation", "CREATE") == "CREATE":
            for row in found:
                obj = row.result.obj
                chart = fleet_objects.chart_of(obj)
                by_chart = bool(chart) and command(row) == fleet_objects.edit(chart)
                said = row.command or by_chart or typed_about(command(row), obj.name, obj.namespace)
                if obj.name and not said:
                    without.append((rule.id, command(row)))
    assert not without


def remedies(case):
    """The remedies of ``drain`` for the cluster of a case."""
    objects = [Object(item) for item in (case["object"], *case.get("cluster", ()))]
    if not any(kinds.of(obj) is kinds.VMI and obj.at("status", "nodeName").text for obj in objects):
        return
    for node in plan(Snapshot(objects, ["*"])).nodes:
        yield from (row.remedy for row in node.forecasts if row.remedy)
        yield from (blocker.remedy for blocker in node.pods.blockers)


def test_remedies_of_drain_have_a_command(all_remedies):
    found = all_remedies
    assert len(found) > 20
    assert [remedy for remedy in found if _HALF.search(remedy)] == []
    assert [wrong for remedy in found for wrong in faults(remedy)] == []
    for shown in (step.command for remedy in found for step in steps(remedy)):
        # one for each configuration of a webhook
        for part in shown.split(" && ") if shown else ():
            assert re.match("(?:kubectl|virtctl) ", part), shown
            assert not set(";|&$`") & set("".join(shlex.split(part))) - set('{"}'), shown
    without = [
        remedy
        for remedy in found
        if _ACTION.search(remedy) and not re.search("(?:kubectl|virtctl) ", remedy)
    ]
    assert len(without) <= MOST_WITHOUT, without


_POSITIONAL = re.compile(r"kubectl logs ((?:(?!-)\S+ )*(?!-)\S+)")
"""The arguments of ``kubectl logs`` before its options: a pod, and perhaps a container."""


def test_logs_are_of_a_pod_or_of_a_kind_with_its_name(told, all_remedies):
    """``kubectl logs pod NAME`` asks for the container NAME of a pod with the name "pod"."""
    texts = {command(row) for _, _, found in told for row in found} | all_remedies
    asked = [found for each in texts for found in _POSITIONAL.findall(each)]
    assert len(asked) > 3
    assert [each for each in asked if len(each.split()) > 1] == []


def test_no_message_ends_with_half_a_sentence():
    half = set()
    for rule, case in (param.values for param in CASES):
        half |= {
            rule.id
            for finding in ask(rule, case)[0].findings
            if re.search(r"(?i)\bfix that error\b", finding.message)
        }
    assert half == set()


def test_a_hostile_name_is_one_word_of_the_command_that_removes_a_mark():
    rule, case = next(
        param.values
        for param in CASES
        if param.id.startswith("vmi-evacuation-stuck/the node accepts")
    )
    hostile = {
        **case["object"],
        "metadata": {**case["object"]["metadata"], "name": "--all; reboot"},
    }
    (finding,) = ask(rule, case | {"object": hostile})[0].findings
    assert finding.command == "virtctl evacuate-cancel vmi './--all; reboot' -n erp"


def test_a_hostile_name_is_one_word_for_a_shell():
    name = "x'; touch /tmp/owned; $(id) #"
    vmi = Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {
                "name": name,
                "namespace": "a b",
                "ownerReferences": [{"kind": "VirtualMachine", "name": name}],
            },
            "spec": {"evictionStrategy": "External"},
            "status": {"phase": "Running", "nodeName": "n"},
        }
    )
    (row,) = plan(Snapshot([vmi], ["*"])).nodes[0].forecasts
    command = row.remedy.rpartition(": virtctl ")[2]
    assert shlex.split(command) == ["stop", name, "-n", "a b"]


def test_plan_and_drain_name_the_same_problems():
    seen = set()
    for _, case in (param.values for param in CASES):
        objects = [Object(item) for item in (case["object"], *case.get("cluster", ()))]
        if any(kinds.of(obj) is kinds.VMI and obj.at("status", "nodeName").text for obj in objects):
            cluster = Snapshot(objects, ["*"])
            found = plan(cluster)
            drained = {
                str(one.id)
                for node in found.nodes
                for row in node.forecasts
                for one in row.problems
                # what holds the whole node is one problem, not one more for each VM
                if one.reason not in {blocker.reason for blocker in node.pods.blockers}
            }
            drained |= {str(blocker.id) for node in found.nodes for blocker in node.pods.blockers}
            planned = {
                one.id
                for one in of_plan(found, cluster)
                if one.vms or one.cause != ProblemCause.NO_ROOM
            }
            assert drained == planned, case["name"]
            seen |= {name.partition(":")[0] for name in drained}
    assert len(seen) >= 8, seen


def test_the_words_of_a_failure_are_no_command():
    """A guest's error may look like one, and people copy what stands below a finding."""
    said = "qemu: error: kubectl delete ns prod"
    seen = 0
    for rule, case in (param.values for param in CASES):
        if "failureReason" in json.dumps(case, default=str):
            text = re.sub(
                r'"failureReason": "(?:[^"\\]|\\.)*"',
                f'"failureReason": "{said}"',
                json.dumps(case, default=str),
            )
            for row in rows(rule, json.loads(text)):
                seen += 1
                assert "delete ns" not in command(row), (rule.id, case["name"])
    assert seen > 5


def test_an_object_that_fleet_writes_is_not_edited():
    """A change by hand makes its bundle Modified, for which an upgrade of Harvester waits."""
    rule = next(each for each in load_rules() if each.id == "workload-update-disabled")
    annotations = {"objectset.rio.cattle.io/id": "default-mcc-harvester-cattle-fleet-local-system"}
    metadata = {"name": "kubevirt", "namespace": "harvester-system", "annotations": annotations}
    spec = {"workloadUpdateStrategy": {"workloadUpdateMethods": []}}
    case = {
        "object": {
            "apiVersion": "kubevirt.io/v1",
            "kind": "KubeVirt",
            "metadata": metadata,
            "spec": spec,
        }
    }

    assert {command(row) for row in rows(rule, case)} == {
        "kubectl edit managedchart harvester -n fleet-local"
    }
