"""What a scan tells once, and in which order: one remedy, a VM and its VMI,
a VM that cannot run.
"""

from __future__ import annotations

import pathlib

import pytest

from virt_admit.engine.admission_review import Request, Response, Verdict
from virt_admit.forecasts.upgrade.rehearsal import Stop
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object, Path
from virt_admit.model.remediation import fence_taints
from virt_admit.reports.findings import grouping, told_once
from virt_admit.reports.findings.commands import command
from virt_admit.reports.findings.report import ObjectResult, ReportRow, rows_of
from virt_admit.reports.upgrade import text as upgrade_text
from virt_admit.rule import Action, DrainAdvice, Finding, RuleOptions, Urgency
from virt_admit.rules import listed_rules

VERSIONS = {
    "KubeVirt": "kubevirt.io/v1",
    "HyperConverged": "hco.kubevirt.io/v1beta1",
    "Plan": "upgrade.cattle.io/v1",
} | dict.fromkeys(("VirtualMachine", "VirtualMachineInstance"), "kubevirt.io/v1")
MISSING = "its network, NetworkAttachmentDefinition shop/vlan{}, does not exist"
SEE = "kubectl get networkattachmentdefinition -n shop"


def row(rule, kind, name, message, action=Action.WARN, *, command="", unseen="", **declared):
    """Return a row of a rule that exists, or of a new one that declares this."""
    namespace = "" if kind == "Node" else "shop"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    obj = Object(
        {"apiVersion": VERSIONS.get(kind, "v1"), "kind": kind, "metadata": metadata}, namespace
    )
    result = ObjectResult(Request("CREATE", kinds.of(obj), obj), Response())
    found = None if unseen else action
    known = listed_rules().by_id
    options = known[rule] if rule in known else RuleOptions(kinds=(), action=action, **declared)
    return ReportRow(
        rule, found, message, Path(), result, None, declared=options, command=command, unseen=unseen
    )


def told(*rows):
    return [
        (each.rule, grouping.called(each), grouping.also(each)) for each in grouping.problems(rows)
    ]


def rules(*rows):
    return [each.rule for each in grouping.problems(rows)]


def test_a_command_that_declares_a_node_off_is_not_shown_without_its_condition():
    way = fence_taints.fence_command("n1")
    assert (
        command(row("node-not-reporting", "Node", "n1", "not fenced", command=way))
        == "virt-admit explain node/n1"
    )
    see = "kubectl taint nodes n1 example.com/x=y:NoSchedule"
    assert command(row("node-not-reporting", "Node", "n1", "not fenced", command=see)) == see


STUCK = row(
    "vm-start-stuck",
    "VirtualMachine",
    "db",
    "the VM should run: no node has instance type shop/large",
)


def test_what_is_down_then_what_does_not_go_on_then_warnings_then_advice():
    rows = (
        row(
            "migration-limit-unreachable",
            "KubeVirt",
            "kubevirt",
            "4 migrations, not 5",
            Action.AUDIT,
        ),
        row("workload-update-disabled", "KubeVirt", "kubevirt", "updates wait"),
        row(
            "vmi-evacuation-stuck",
            "VirtualMachineInstance",
            "web",
            "a drain waits for it",
            Action.AUDIT,
        ),
        STUCK,
    )
    assert rules(*rows) == [
        "vm-start-stuck",
        "vmi-evacuation-stuck",
        "workload-update-disabled",
        "migration-limit-unreachable",
    ]


def test_a_new_rule_says_where_its_rows_are():
    told = [
        row("a-later", "Node", "a", "updates would wait"),
        row("b-stuck", "Node", "b", "an update waits", Action.AUDIT, urgency=Urgency.STUCK),
        row("c-down", "Node", "c", "it is down", Action.AUDIT, urgency=Urgency.DOWN),
    ]
    assert rules(*told) == ["c-down", "b-stuck", "a-later"]


def test_of_advice_about_drains_the_one_that_says_most_is_shown():
    assert sorted(DrainAdvice) == list(DrainAdvice)
    advice = [
        row(f"new-{each.name}", "VirtualMachine", "db", f"{each.name} says so", drain_advice=each)
        for each in DrainAdvice
    ]
    assert sorted(rules(*advice)) == sorted(each.rule for each in advice)  # no warning is left out
    audits = [each._replace(action=Action.AUDIT) for each in advice]
    assert rules(*audits) == ["new-NONE", "new-LOSS", "new-NO_NODE"]
    down = row("new-down", "VirtualMachine", "db", "it is down", urgency=Urgency.DOWN)
    assert rules(*audits, down) == ["new-down", "new-NONE"]


def test_a_new_rule_about_an_effect_makes_way_for_the_cause():
    see = "kubectl patch daemonset plugin -n storage"
    effect = row("a-effect", "Node", "w1", "a drain waits", command=see, effect=True)
    cause = row("b-cause", "Node", "w2", "no pod of it can be made", command=see)
    assert told(effect, cause) == [("b-cause", "Node/w2", "Node/w1 [a-effect]")]


def test_no_rule_is_named_in_the_module():
    """A rule is two files: what a scan has to know of it, it declares itself."""
    text = pathlib.Path(told_once.__file__).read_text()
    assert [rule for rule in listed_rules().by_id if f'"{rule}"' in text] == []


def test_a_row_knows_what_its_rule_declares():
    some = listed_rules().by_id["vm-start-stuck"]
    found = Verdict(some, Finding(Path("a"), "it does not start"), Action.WARN)
    response = Response((found,), unseen=((some, "pods"),), errors=((some, "KeyError"),))
    result = ObjectResult(Request("CREATE", kinds.VM, STUCK.result.obj), response)
    assert [each.declared for each in rows_of(result)] == [some] * 3


def test_one_change_that_repairs_a_node_and_its_plan():
    change = "kubectl patch plans.upgrade.cattle.io k3s -n system --type=merge -p '{}'"
    cordon = row(
        "node-cordon-stays", "Node", "w2", "cordoned by Plan k3s, whose Job failed", command=change
    )
    plan = row("node-update-held", "Plan", "k3s", "it has stopped", command=change)
    assert told(plan, cordon) == [
        ("node-cordon-stays", "Node/w2", "Plan/shop/k3s [node-update-held]")
    ]


def test_a_cause_and_its_effect_with_one_command():
    cause = row(
        "vm-network-missing",
        "VirtualMachine",
        "a",
        f"no pod of it can be made: {MISSING.format(1)}",
        command=SEE,
    )
    effect = "a drain waits for it: no target pod of it can be made: " + MISSING.format(1)
    moved = row(
        "vmi-evacuation-stuck", "VirtualMachineInstance", "a", effect, Action.AUDIT, command=SEE
    )
    named = "VirtualMachineInstance/shop/a [vmi-evacuation-stuck]"
    assert told(moved, cause) == [("vm-network-missing", "VirtualMachine/shop/a", named)]


@pytest.mark.parametrize("rule", ["vm-network-missing", "vmi-evacuation-stuck"])
def test_different_causes_with_one_command_are_both_told(rule):
    one = row(
        "vm-network-missing",
        "VirtualMachine",
        "aaaa",
        f"no pod of it: {MISSING.format(1)}",
        command=SEE,
    )
    other = row(rule, "VirtualMachine", "bbbb", f"no pod of it: {MISSING.format(2)}", command=SEE)
    assert sorted(rules(one, other)) == sorted(("vm-network-missing", rule))


def test_the_rule_about_the_cause_is_kept_with_its_remedy():
    cause = "the kubelet of s1 cannot kill it (FailedKillPod: context deadline exceeded)"
    see = "kubectl describe pod old -n shop"
    drain = row("node-drain-held", "Node", "s1", f"Upgrade up-1 waits: {cause}", command=see)
    left = row(
        "vmi-source-pod-left",
        "VirtualMachineInstance",
        "db",
        f"its pod: {cause}. Restart it.",
        command=see,
    )
    assert told(drain, left) == [
        ("vmi-source-pod-left", "VirtualMachineInstance/shop/db", "Node/s1 [node-drain-held]")
    ]


def test_one_cause_of_several_rules_about_a_node():
    cause = (
        "the label remediation/exclude excludes it: release 0.10 of Node Health Check does not "
        "read its value 'false'"
    )
    silent = row(
        "node-not-reporting",
        "Node",
        "w2",
        f"this node does not report: {cause}",
        command="kubectl label node w2 x-",
    )
    without = row("node-without-health-check", "Node", "w2", f"no check can act ({cause})")
    other = row("node-without-health-check", "Node", "w3", f"no check can act ({cause})")
    assert rules(without, silent, other) == ["node-not-reporting", "node-without-health-check"]


def test_nodes_that_one_list_names_share_a_row():
    edit = "kubectl edit snrc config -n ops"
    said = "none acts (agents cannot reboot (worker-1, worker-2)), so {} would not restart"
    nodes = (("worker-1", "1 VM"), ("worker-2", "3 VMs"))
    found = [
        row("node-without-health-check", "Node", name, said.format(vms), command=edit)
        for name, vms in nodes
    ]
    assert [each[1] for each in told(*found)] == ["Node/worker-1 and 1 more"]


def test_one_cause_whose_remedy_has_no_command_of_its_own():
    cause = (
        "a, b and c are labelled kubevirt.io/schedulable=false, although virt-handler is Ready "
        "there: its device plugins are not registered, as its DaemonSet mounts /var/lib/kubelet"
    )
    see = "virt-admit explain {}"
    down = row(
        "vm-start-stuck",
        "VirtualMachine",
        "db",
        f"the VM should run: {cause}",
        command=see.format("vm/db -n shop"),
    )
    node = row("node-devices-unregistered", "Node", "a", cause, command=see.format("node/a"))
    other = row("node-health", "Node", "b", cause[:60], command=see.format("node/b"))
    assert told(down, node, other) == [
        ("vm-start-stuck", "VirtualMachine/shop/db", "Node/a [node-devices-unregistered]"),
        ("node-health", "Node/b", ""),
    ]


def test_a_vm_and_its_vmi():
    message = "only node w1 can run this VM (no other node exists), so a drain never completes."
    vm, vmi = (
        row("vm-single-candidate-node", each, "db", message)
        for each in ("VirtualMachine", "VirtualMachineInstance")
    )
    assert told(vmi, vm) == [
        (
            "vm-single-candidate-node",
            "VirtualMachine/shop/db",
            "VirtualMachineInstance/shop/db [vm-single-candidate-node]",
        )
    ]
    differs = vmi._replace(message="only node w2 can run this VM.")
    assert len(told(vm, differs)) == 2


@pytest.mark.parametrize("action", [Action.WARN, Action.AUDIT])
@pytest.mark.parametrize(
    ("name", "owner", "once"),
    [
        ("kubevirt-main", None, True),
        ("kubevirt", "main", True),
        ("kubevirt", None, False),
        ("kubevirt-other", None, False),
    ],
)
def test_a_setting_of_hyperconverged_and_of_its_kubevirt(action, name, owner, once):
    said = "outdated VMs wait. List LiveMigrate"
    hco = row(
        "workload-update-disabled", "HyperConverged", "main", f"{said}, or remove it.", action
    )
    written = row("workload-update-disabled", "KubeVirt", name, f"{said}.", action)
    if owner:
        references = [{"kind": "HyperConverged", "name": owner, "controller": True}]
        written.result.obj.data["metadata"]["ownerReferences"] = references
    names = [each[1] for each in told(written, hco)]
    assert "HyperConverged/shop/main" in names
    assert len(names) == (1 if once else 2)
    differs = written._replace(message="hotplugs wait. List LiveMigrate.")
    assert len(told(differs, hco)) == 2


def test_advice_about_a_vm_that_cannot_run_is_named_alone():
    strategy = row(
        "vm-eviction-strategy-default", "VirtualMachine", "db", "no strategy is set", Action.AUDIT
    )
    unread = row(
        "vm-claim-node-local",
        "VirtualMachine",
        "db",
        "",
        unseen="instancetypes.kubevirt.io shop/large",
    )
    forbidden = row("vm-claim-node-local", "VirtualMachine", "db", "", unseen="secrets shop/login")
    (stuck,) = grouping.problems((strategy, unread, STUCK))
    assert (stuck.rule, grouping.later(stuck)) == ("vm-start-stuck", "vm-eviction-strategy-default")
    assert rules(STUCK, forbidden) == ["vm-start-stuck", "vm-claim-node-local"]
    # another fault of such a VM, and advice about a VM that runs, have rows of their own
    fault = row("vm-crashes-kubevirt", "VirtualMachine", "db", "it crashes virt-launcher")
    runs = row(
        "vm-eviction-strategy-default", "VirtualMachine", "web", "no strategy is set", Action.AUDIT
    )
    assert rules(STUCK, fault, runs) == [
        "vm-start-stuck",
        "vm-crashes-kubevirt",
        "vm-eviction-strategy-default",
    ]


def test_the_eviction_strategy_of_a_vm_is_one_row():
    audits = [
        row(rule, "VirtualMachine", "db", f"{rule} says so", Action.AUDIT)
        for rule in ("vm-eviction-strategy-default", "vm-shutdown-on-drain")
    ]
    warned = row("vm-rerun-on-failure-drain-stop", "VirtualMachine", "db", "the VM stays off")
    assert rules(*audits) == ["vm-eviction-strategy-default"]
    assert rules(*audits, warned) == ["vm-rerun-on-failure-drain-stop"]
    # two disks that keep a VM from migrating are two causes
    disks = [
        row("vm-live-migrate-not-migratable", "VirtualMachine", "db", f"claim c{n}") for n in (1, 2)
    ]
    rest = [each._replace(path=Path("v", n)) for n, each in enumerate(disks)]
    assert rules(*rest, warned) == ["vm-live-migrate-not-migratable"] * 2 + [
        "vm-rerun-on-failure-drain-stop"
    ]


def test_nothing_is_lost():
    """Each object and rule is in a row or named by one."""
    change = "kubectl annotate daemonset kured -n kube-system lock-"
    rows = [
        row("node-reboot-held", "Node", f"w{n}", f"w{n} is not rebooted", command=change)
        for n in (1, 2, 3)
    ]
    assert told(*rows) == [("node-reboot-held", "Node/w1 and 2 more", "Node/w2, Node/w3")]


def test_a_remedy_of_several_nodes_is_written_once():
    remedy = "Let DaemonSet storage/plugin tolerate it: kubectl patch daemonset plugin -n storage"
    told = list(
        upgrade_text._stops(
            [
                Stop("a", "PodDisruptionBudget shop/web: pod web-1 cannot be evicted", remedy),
                Stop("b", "PodDisruptionBudget shop/web: pod web-2 cannot be evicted", remedy),
                Stop("c", "PodDisruptionBudget shop/db: pod db-1 cannot be evicted", "Wait."),
                Stop("d", "PodDisruptionBudget shop/db: pod db-2 cannot be evicted", "Wait."),
            ]
        )
    )
    assert [line for line in told if "to do" in line] == [
        f"  to do: {remedy}",
        "  to do: the same as at a",
        "  to do: Wait.",
        "  to do: Wait.",
    ]
