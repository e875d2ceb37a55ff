"""Launchers that crash at once: the cause is in the VM, or common to the nodes where no VM runs."""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago
from virt_admit.forecasts.drain.starts import start_obstacles
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy import parser
from virt_admit.reports.explain import judged_rules
from virt_admit.rules import Rules, listed_rules

from .machines import find, guest, launcher_of


def crashed(name, node, code=2, lived=7, user=107, run="Manual"):
    """Return a VM whose launcher ended so long after its start."""
    items = guest(name, node, run=run)
    vmi, launcher = find(items, "VirtualMachineInstance", name), launcher_of(items, name)
    find(items, "VirtualMachine", name)["status"] |= {"printableStatus": "Stopped", "ready": False}
    stamps = {"Scheduled": 60 + lived, "Failed": 60}
    vmi["status"] |= {
        "phase": "Failed",
        "runtimeUser": user,
        "phaseTransitionTimestamps": [
            {"phase": phase, "phaseTransitionTimestamp": ago(seconds=late)}
            for phase, late in stamps.items()
        ],
    }
    ended = {
        "exitCode": code,
        "reason": "Error",
        "startedAt": ago(seconds=60 + lived),
        "finishedAt": ago(seconds=60),
    }
    launcher["status"] |= {
        "phase": "Failed",
        "containerStatuses": [{"name": "compute", "state": {"terminated": ended}}],
    }
    return items


def ended(name):
    """Return the launcher that is left of a VM whose guest was shut down."""
    launcher = launcher_of(guest(name, "w3", run="Halted"), name)
    launcher["status"]["phase"] = "Succeeded"
    return [*off(name), launcher]


def off(name):
    own = guest(name, "w1", run="Halted")
    find(own, "VirtualMachine", name)["status"] = {"printableStatus": "Stopped"}
    return [each for each in own if each["kind"] not in ("VirtualMachineInstance", "Pod")]


def on(runtime, *guests):
    """Return a cluster with this container runtime on each node."""
    items = plain((1, 6))
    for each in items:
        if each["kind"] == "Node":
            info = {"containerRuntimeVersion": runtime, "kernelVersion": "6.1.0-17-amd64"}
            each["status"]["nodeInfo"] = each["status"].get("nodeInfo", {}) | info
    return items + [each for guest_ in guests for each in guest_]


def cluster_of(items, complete=("*",)):
    return Snapshot(list(map(Object, items)), list(complete), time=ago())


def down(items, name="one"):
    vm, vmi = (find(items, kind, name) for kind in ("VirtualMachine", "VirtualMachineInstance"))
    return start_obstacles.stays_off(Object(vm), Object(vmi), cluster_of(items))


ALIKE = (crashed("one", "w1"), crashed("two", "w2"))


def test_a_docker_with_which_no_launcher_starts():
    found = down(on("docker://23.0.6", *ALIKE))

    assert found.reason == (
        "it is not running: its last start failed: container compute of virt-launcher-one-k2x7q on "
        "w1 ended with exit code 2, 7 s after its start, as did that of vms/two on w2. No VM runs, "
        "so no single VM is the cause. The nodes run docker://23.0.6, and before 23.0.7 Docker "
        "takes the capabilities from launchers, which then crash (kubevirt#9465). Its VMI is "
        "Failed, and Manual does not start it again"
    )
    assert found.remedy == (
        "update Docker on all nodes to 23.0.7 or later, or use containerd, if the launcher's log "
        "says errno 0: kubectl logs virt-launcher-one-k2x7q -n vms -c compute"
    )


@pytest.mark.parametrize(
    ("runtime", "user"),
    [("containerd://1.7.2", 107), ("docker://23.0.7", 107), ("docker://23.0.6", 0)],
)
def test_another_cause_that_the_nodes_have_in_common(runtime, user):
    alike = [crashed(f"vm{number}", f"w{number}", user=user) for number in (1, 2, 3)]
    found = down(on(runtime, *alike), "vm1")

    assert "No VM runs, so one cause for all is likely" in found.reason
    assert f"Common to them: {runtime}, kernel 6.1.0-17-amd64, KubeVirt 1.6" in found.reason
    assert "Docker on all nodes" not in found.remedy
    assert found.remedy.startswith("correct what the launcher's log says, on all nodes if")


@pytest.mark.parametrize(
    "guests",
    [
        (crashed("one", "w1"),),
        (crashed("one", "w1"), crashed("two", "w1")),
        (crashed("one", "w1"), crashed("two", "w2", code=1)),
        (crashed("one", "w1", lived=90), crashed("two", "w2", lived=90)),
        (*ALIKE, guest("three", "w3")),
        (*ALIKE, ended("three")),
        ALIKE,
    ],
    ids=["alone", "one node", "unlike", "late", "another runs", "another ran", "one template"],
)
def test_a_crash_that_may_be_the_own_fault_of_a_vm(guests):
    runtime = "containerd://1.7.2" if guests == ALIKE else "docker://23.0.6"
    items = on(runtime, *guests, off("four"))
    found = down(items)

    assert "is the cause" not in found.reason
    assert found.remedy.startswith("correct what its log says")
    vm = Object(find(items, "VirtualMachine", "four"))
    assert start_obstacles.of_stopped(vm, cluster_of(items)) is None


def test_vms_that_were_not_read_may_run():
    items = on("docker://23.0.6", *ALIKE, off("four"))
    vm = Object(find(items, "VirtualMachine", "four"))
    some = cluster_of(items, ["pods", "nodes"])
    assert start_obstacles.of_stopped(vm, some) is None


def test_a_vm_that_is_off_is_not_to_be_started_without_a_reservation(ask):
    told = ask(on("docker://23.0.6", *ALIKE, off("four")), "explain", "vm/four", "-n", "vms")

    assert "and could not start: container compute of the launchers of vms/one on w1, vms/two" in (
        " ".join(told.split())
    )
    assert "w1, w2, w3, after the steps to do below" in told
    assert "in principle, but it cannot start now: see below" in told
    assert "virtctl start" not in told


def test_a_vm_that_is_off_may_be_started_where_the_cause_is_not_certain(ask):
    """The launchers ended in the second in which they began."""
    alike = [crashed(f"vm{number}", f"w{number}", lived=0) for number in (1, 2, 3)]
    told = ask(on("containerd://1.7.2", *alike, off("four")), "explain", "vm/four", "-n", "vms")

    assert (
        "it is off, as it is meant to be: with run strategy Halted KubeVirt does not start it. It "
        "may not start: container compute of the launchers of vms/vm1 on w1, vms/vm2 on w2, "
        "vms/vm3 on w3 ended with exit code 2 within 0 s of its start. No VM runs, so one cause"
    ) in " ".join(told.split())
    assert "virtctl start four" in told


def test_a_vm_that_is_started_again_and_again(ask):
    own = crashed("one", "w1", run="Always")
    find(own, "VirtualMachine", "one")["status"] |= {"startFailure": {"consecutiveFailCount": 11}}
    items = on("docker://23.0.6", own, ALIKE[1])

    assert "KubeVirt starts it again without success" in ask(
        items, "explain", "vm/one", "-n", "vms"
    )
    told = " ".join(ask(items, "scan").split())
    assert "its last 11 starts failed: container compute of virt-launcher-one-k2x7q on w1" in told
    assert "Update Docker on all nodes to 23.0.7 or later" in told


@pytest.mark.parametrize(("times", "said"), [(2, False), (11, True)])
def test_a_crash_loop_of_which_no_pod_is_left(ask, times, said):
    own = off("one")
    vm = find(own, "VirtualMachine", "one")
    vm["spec"].pop("running", None)
    vm["spec"]["runStrategy"] = "Always"
    failure = {"consecutiveFailCount": times, "retryAfterTimestamp": ago(seconds=-90)}
    vm["status"] |= {"printableStatus": "CrashLoopBackOff", "startFailure": failure}
    told = " ".join(ask(on("containerd://1.7.2", own), "scan").split())

    assert ("its last 11 starts failed, and no pod of them is left to say why" in told) is said
    assert ("kubectl describe pods -n vms -l vm.kubevirt.io/name=one" in told) is said
    assert "kubectl logs" not in told


def beside(runtime="docker://20.10.23", there="containerd://1.6.20", image="v0.59", **crash):
    """Return a cluster where one VM crashes on w1 or w2 and another runs on w3."""
    items = on(runtime, crashed("one", "w1", **crash), guest("two", "w3"))
    find(items, "Node", "w3")["status"]["nodeInfo"]["containerRuntimeVersion"] = there
    for name, tag in (("one", "v0.59"), ("two", image)):
        launcher_of(items, name)["spec"]["containers"] = [{"name": "compute", "image": tag}]
    find(items, "VirtualMachineInstance", "one")["status"]["phaseTransitionTimestamps"][0] |= {
        "phase": "Scheduling"  # it was never handed over
    }
    return items


def test_an_old_docker_on_some_nodes_while_the_image_runs_on_others(ask):
    items = beside()
    found = down(items)

    assert (
        "Launchers of the same image run only on other nodes (vms/two on w3), unlike which w1 has "
        "containerRuntimeVersion docker://20.10.23 (there containerd://1.6.20), like w2. Before "
        "23.0.7 Docker takes the capabilities"
    ) in found.reason
    assert found.remedy.startswith("update Docker on w1, w2 to 23.0.7 or later")
    assert "let it start on w3 alone" in found.remedy
    told = ask(items, "explain", "vm/one", "-n", "vms")
    assert "could start on     w3, after the steps to do below" in told


OUTDATED = {
    "phase": "Deployed",
    "outdatedVirtualMachineInstanceWorkloads": 1,
    "observedKubeVirtVersion": "v1.6.0",
}


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (beside(), "Repair w1, w2 first, where launchers crash (vms/one), then list LiveMigrate."),
        (
            beside(runtime="containerd://1.5.0"),
            "switched off. List LiveMigrate in workloadUpdateMethods, or use virtctl migrate for "
            "single VMs.",
        ),
    ],
    ids=["its Docker lets them crash", "another cause"],
)
def test_no_vm_is_to_migrate_to_nodes_where_launchers_crash(items, says):
    kubevirt = next(each for each in items if each["kind"] == "KubeVirt")
    kubevirt["spec"], kubevirt["status"] = {}, OUTDATED
    rule = listed_rules().by_id["workload-outdated"]
    (found,) = judged_rules.judge(
        [Object(kubevirt)], Rules((rule,)), cluster_of(items), parser.load("audit", listed_rules())
    )

    assert found.message.rstrip().endswith(says)


@pytest.mark.parametrize(
    ("items", "compared"),
    [
        (beside(there="docker://20.10.23"), False),
        (beside(image="v0.54"), False),
        (beside(user=0), True),
        (beside(runtime="containerd://1.5.0"), True),
    ],
    ids=["it runs there too", "another image runs", "it runs as root", "not Docker"],
)
def test_nodes_that_are_not_known_to_be_the_cause(items, compared):
    found = down(items)

    assert "Docker takes" not in found.reason
    assert ("run only on other nodes" in found.reason) is compared
    assert found.remedy.startswith("correct what its log says")
