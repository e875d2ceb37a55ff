"""What an explanation says once: a cause of several events, nodes with the same reasons,
a remedy in two forms.
"""

import json
import re

import pytest

from tests.healthy.clusters import plain
from tests.incidents_platform import operators
from tests.incidents_platform.case import cluster as platform
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.model.kubernetes.kinds import PVC
from virt_admit.reports.drain.words import state_words

from . import failures, fourth_look, node_plugins, starts
from .machines import draining, failed, find, guest, launcher_of

LACKS = (
    "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
    "virError(Code=9, Domain=31, Message='operation failed: guest CPU doesn't match specification: "
    "missing features: vmx-vmfunc')"
)
LATE = "Live migration is not completed after 25600 seconds and has been aborted"


def section(text, title):
    return text.partition(f"\n{title}\n")[2].partition("\n\n")[0]


@pytest.mark.parametrize(
    ("incident", "begins"),
    [
        (starts.guest_ended_for_memory(), "it is not running: its VMI has been Failed for"),
        (starts.volume_without_copies(), "it does not run yet (its VMI is Scheduling), because "),
        (starts.scratch_space(), "its disk "),
    ],
)
def test_why_a_vm_does_not_run(ask, incident, begins):
    text, data = (ask(incident.items, *incident.ask, *more) for more in ((), ("-o", "json")))
    reasons = [each["reason"] for each in json.loads(data)["events"]]
    assert (len(reasons), len(set(reasons))) == (5, 1)
    assert reasons[0].startswith(begins)
    assert section(text, "Why it does not run").strip() == reasons[0]
    # a rule says the same where its message has room
    apart = text.replace(section(text, "Rules"), "")
    assert (apart.count(reasons[0]), "What would happen" in text) == (1, False)


def test_a_cause_of_several_events(ask):
    words = " ".join(
        section(
            ask(fourth_look.older_devices().items, "explain", "vm/web"), "What would happen"
        ).split()
    )
    assert words.count("Features 0x1c0010130afffaf unsupported") == 1
    assert "a migration now starts and fails as for a drain of its node" in words


def test_nodes_with_the_same_reasons(ask):
    items = fourth_look.older_devices().items
    rows = section(ask(items, "explain", "vm/web"), "Why not to other nodes")
    assert "cp1, cp2, cp3  KubeVirt does not run there" in rows
    short = json.loads(ask(items, "explain", "vm/web", "-o", "json"))["short"]
    assert all(
        "taint node-role.kubernetes.io/control-plane" in each["what"]
        for each in short
        if each["node"][:2] == "cp"
    )


def test_a_vm_that_a_cause_keeps_off_could_start_after_it(ask):
    said = ask(starts.webhooks_that_refuse_their_own_pods().items, "explain", "vm/web")
    assert ", after the steps to do below\n" in said
    assert "\n  state              starts without success" in said
    assert "\nWhy not to other nodes\n" not in said


def test_nodes_that_were_not_tried(ask):
    items = draining()
    failed(items, "web", LACKS, ("w2",) * 5)
    said = ask(items, "explain", "vm/web")
    assert "on every node" not in said
    assert "on each node tried so far, not yet w3: w2: " in said
    remedies = [
        line.partition(", which takes effect")[0] for line in section(said, "To do").splitlines()
    ]
    assert len(remedies) == len(set(remedies))


def test_a_migration_after_others_that_were_cancelled(ask):
    items = failures.busy_memory().items
    failed(items, "web", LATE, ("w2", "w2"), lasted=25_600)
    items.append(
        items.pop(
            next(
                i
                for i, each in enumerate(items)
                if each["metadata"]["name"] == "kubevirt-evacuation-web"
            )
        )
    )
    said = ask(items, "explain", "vm/web")
    words = section(said, "What would happen")
    assert words.count("its last 2 migrations were cancelled after") == 1
    assert "migration kubevirt-evacuation-web is under way: as for a drain of its node" in words
    migration = json.loads(ask(items, "explain", "vm/web", "-o", "json"))["events"][-1]
    assert "is under way, and its last 2 migrations were cancelled after" in migration["reason"]


def test_a_disk_that_is_not_filled_is_no_fault_of_the_nodes(ask):
    incident = starts.scratch_space()
    (claim,) = [
        each
        for each in incident.items
        if (each["kind"], each["metadata"]["name"]) == (PVC.kind, "enc01")
    ]
    claim["status"]["phase"] = "Pending"
    del claim["spec"]["volumeName"]
    text = ask(incident.items, *incident.ask)
    assert "is not bound" not in text
    assert re.search(r"\n  could start on     \S.*, (after the steps to do|once what keeps)", text)
    assert "the VM should run: see above." in section(text, "Rules")
    assert "\nNotes\n" not in text


def test_an_update_that_is_stuck_comes_before_the_nodes(ask):
    items = operators.stored_version().items
    stuck, remedy, nodes = ask(items, "upgrade").splitlines()[:3]
    assert stuck.startswith("The update of operator ")
    assert " is stuck for 55 min: InstallPlan " in stuck
    assert remedy.startswith("  to do: ")
    assert nodes.startswith("The nodes do not hold it up. Their update alone would complete: ")
    found = json.loads(ask(items, "upgrade", "-o", "json"))
    assert (found["possible"], found["duration"], found["stops"]) == (False, None, [])
    assert found["waves"]
    assert "Stuck" in ask(items, "upgrade", "-o", "html")


def test_nothing_is_stuck(ask):
    assert ask(platform(), "upgrade").startswith("Yes: ")


def test_vms_with_one_reason(ask):
    items = plain((1, 6))
    for name in ("db", "web"):
        items += guest(name)
        find(items, "VirtualMachineInstance", name)["spec"]["nodeSelector"] = {
            "kubernetes.io/hostname": "w1"
        }
    drain, upgrade = (ask(items, *words) for words in (("drain", "w1"), ("upgrade",)))
    for said in (drain, upgrade):
        assert said.count("LiveMigrate, but no other node can take it: node selector") == 1
    assert re.search(r"blocks the drain +vms/web +the same as vms/db\n", drain)
    assert "vms/web: the same as vms/db\n" in upgrade
    rows = json.loads(ask(items, "drain", "w1", "-o", "json"))["nodes"][0]["vms"]
    assert len({row["reason"] for row in rows}) == 1


def test_each_state_has_words():
    said = [state_words(state, ()) for state in State]
    assert len(set(said)) == len(said)
    assert [words for words in said if " " not in words or "is is" in words] == []


def test_a_drain_of_all_nodes_says_no_while_an_operator_is_held(ask):
    said = ask(operators.stored_version().items, "drain", "--all")
    begin = "Can the cluster be upgraded today? No: the update of operator kubevirt-hyperconverged "
    assert f"{begin}from v2.6.5 to v4.8.0 is stuck for 55 min. 3 nodes can be drained." in said
    held = ask(operators.stored_version().items, "plan", "--for", "upgrade")
    assert "take v1alpha1 out of its status.storedVersions" in held


def test_a_note_about_several_nodes(ask):
    items = node_plugins.driver_with_a_selector().items  # w3 lacks the driver as well
    note = "No volume of driver rook-ceph.rbd.csi.ceph.com can be mounted on this node"
    text, page = (ask(items, "drain", "--all", *more) for more in ((), ("-o", "html")))
    assert (text.count(note), page.count(note)) == (1, 1)
    assert f"\n  note (also for w3): {note}" in text

    items.remove(launcher_of(items, "train"))
    assert f"\n  w2, w3: {note}" in ask(items, "drain", "--all")
