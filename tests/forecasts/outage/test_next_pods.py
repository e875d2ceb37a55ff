"""What the next pod of a lost VM is judged by: its VM, and what refuses its target pod now."""

import pytest

from tests.healthy.clusters import plain
from tests.incidents.machines import event, find, guest, migration
from virt_admit.forecasts.drain import typed_remedies
from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.problems import Problem, ProblemCause

HOST = "kubernetes.io/hostname"


def snapshot(items):
    return Snapshot([Object(item) for item in items], complete=["*"])


def pinned(*, of_vm):
    items = plain() + guest("erp", "w1")
    find(items, "VirtualMachineInstance", "erp")["spec"]["nodeSelector"] = {HOST: "w2"}
    if of_vm:
        template = find(items, "VirtualMachine", "erp")["spec"]["template"]
        template["spec"]["nodeSelector"] = {HOST: "w2"}
    cluster = snapshot(items)
    return next(each for each in cluster.known(candidates.VMI) if each.name == "erp"), cluster


def next_pod(*, of_vm):
    return candidates.pod_to_place(*pinned(of_vm=of_vm), moves=False).node_selector


def remedy(words, *, of_vm):
    problem = Problem("no node takes it", words, ProblemCause.NO_OTHER_NODE)
    return typed_remedies.with_command(problem, *pinned(of_vm=of_vm)).remedy


def test_a_restart_rids_it_of_that_selector():
    assert remedy("free disk space on w2", of_vm=False) == (
        "free disk space on w2; or restart the VM, as the node selector of its VMI names w2, which "
        "its VM does not: virtctl restart erp -n vms"
    )
    assert "of its VMI" not in remedy("free disk space on w2", of_vm=True)


def test_the_next_instance_has_no_selector_that_this_one_alone_has():
    assert HOST not in next_pod(of_vm=False)


def test_a_selector_of_the_vm_stays():
    assert next_pod(of_vm=True)[HOST] == "w2"


POLICY = (
    'pods "virt-launcher-erp-x" is forbidden: violates PodSecurity "restricted:latest": '
    "seccompProfile"
)
HOOK = 'admission webhook "macs.example" denied the request: in use'


def refused(said):
    items = plain() + guest("erp", "w1")
    items.append(migration("erp", {"Pending": 372}))
    if said:
        items.append(event(find(items, "VirtualMachineInstance", "erp"), "FailedCreate", said, "c"))
    cluster = snapshot(items)
    vmi = next(each for each in cluster.known(candidates.VMI) if each.name == "erp")
    return stuck_starts.refused_again(vmi, cluster)


def test_what_refuses_the_target_pod_refuses_the_next_pod():
    found = refused(POLICY)

    assert found is not None
    assert found.reason.startswith(
        "its new pod is refused as its target pod is: violates PodSecurity"
    )
    assert "kubectl label namespace vms" in found.remedy


@pytest.mark.parametrize("said", ["", HOOK], ids=["nothing said", "perhaps the target pod alone"])
def test_nothing_is_certain(said):
    assert refused(said) is None
