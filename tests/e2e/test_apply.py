"""What a user sees on ``kubectl apply``, decided by the real API server asking the real webhook."""

import json

import pytest
import yaml

from tests.apiserver.webhook import Webhook, register
from tests.https.reviews import vm
from tests.prefork import virt_admit
from tests.waiting import eventually
from virt_admit.install import manifests

KUBEVIRT = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {"configuration": {}},
}
SNAPSHOT = {
    "apiVersion": "virt-admit.io/v1alpha1",
    "kind": "Snapshot",
    "complete": ["*"],
    "items": [KUBEVIRT, vm("source", "clones", runStrategy="Always")],
}


@pytest.fixture(scope="module")
def plane(crds, tmp_path_factory):
    """The API server with the webhook registered;
    its look-ups see one KubeVirt and nothing else.
    """
    folder = tmp_path_factory.mktemp("apply")
    (folder / "cluster.json").write_text(json.dumps(SNAPSHOT))
    with Webhook(folder, "--cluster", folder / "cluster.json", program=virt_admit()) as webhook:
        register(crds, webhook)
        crds.webhook = webhook
        yield crds
    crds.kubectl(
        "delete",
        "validatingwebhookconfiguration,mutatingwebhookconfiguration",
        "virt-admit",
        check=True,
    )


@pytest.fixture
def namespace(plane, request):
    """A fresh namespace; there is no controller that would empty an old one."""
    name = "t" + str(abs(hash(request.node.nodeid)) % 10**10)
    plane.kubectl("create", "namespace", name, check=True)
    return name


def apply(plane, *objects, args=()):
    return plane.kubectl("apply", *args, "-f", "-", input=yaml.safe_dump_all(objects))


def test_a_denied_vm_and_what_kubectl_prints(plane, namespace):
    answer = apply(plane, vm("db", namespace, running=True))
    assert answer.returncode == 1
    assert 'The VirtualMachine "db" is invalid:' in answer.stderr
    assert "spec.running" in answer.stderr
    assert "Keep runStrategy and remove running" in answer.stderr
    assert "[virt-admit/vm-running-and-run-strategy]" in answer.stderr


def test_both_findings_in_one_answer(plane, namespace):
    answer = apply(
        plane,
        vm("db", namespace, runStrategy="Running", template={"evictionStrategy": "livemigrate"}),
    )
    assert "[virt-admit/vm-run-strategy-unknown]" in answer.stderr
    assert "[virt-admit/vm-eviction-strategy-unknown]" in answer.stderr


def test_several_denials_of_several_objects_have_a_line_each(plane, namespace):
    """kubectl prints the message of the answer, not its causes,
    if a command sends more than one object.
    """
    wrong = {"runStrategy": "Running", "template": {"evictionStrategy": "livemigrate"}}
    answer = apply(plane, vm("db", namespace, **wrong), vm("web", namespace, **wrong))
    print(answer.stderr)
    lines = answer.stderr.splitlines()
    for name in ("db", "web"):
        start = next(
            i
            for i, line in enumerate(lines)
            if line.endswith(f"VirtualMachine {namespace}/{name}:")
        )
        assert "Error from server (Invalid)" in lines[start]
        assert lines[start + 1].startswith(
            "* spec.template.spec.evictionStrategy: 'livemigrate' is not"
        )
        assert lines[start + 2].startswith("* spec.runStrategy: 'Running' is not")
    findings = [line for line in lines if "[virt-admit/" in line]
    assert len(findings) == 4
    assert max(map(len, findings)) < 256


def test_the_default_is_written_and_said(plane, namespace):
    answer = apply(plane, vm("db", namespace))
    assert answer.returncode == 0, answer.stderr
    assert "spec.template.spec.evictionStrategy was set to LiveMigrate" in answer.stderr
    stored = plane.kubectl(
        "get", "vm", "db", "-n", namespace, "-o", "jsonpath={.spec.template.spec.evictionStrategy}"
    )
    assert stored.stdout == "LiveMigrate"


def test_a_warning(plane, namespace):
    template = {
        "evictionStrategy": "LiveMigrate",
        "domain": {"devices": {"hostDevices": [{"name": "x", "deviceName": "y/z"}]}},
    }
    answer = apply(plane, vm("db", namespace, template=template))
    assert answer.returncode == 0, answer.stderr
    assert "Warning: " in answer.stderr
    assert "HostDeviceNotLiveMigratable" in answer.stderr


def test_a_clone_that_would_be_a_denied_vm(plane):
    """KubeVirt's controller would create it, and its requests are not reviewed."""
    plane.kubectl("create", "namespace", "clones", check=True)
    clone = {
        "apiVersion": "clone.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClone",
        "metadata": {"name": "copy", "namespace": "clones"},
        "spec": {
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "source"},
            "patches": [json.dumps({"op": "add", "path": "/spec/running", "value": True})],
        },
    }
    answer = apply(plane, clone)
    print(answer.stderr)
    assert answer.returncode == 0
    assert "Warning: spec.patches[0]: the policy denies the VM that this gives" in answer.stderr
    assert "vm-running-and-run-strategy (spec.running)" in answer.stderr
    assert answer.stderr.rstrip().endswith("[virt-admit/clone-patch-denied]")


def test_a_server_side_dry_run_decides_alike_and_stores_nothing(plane, namespace):
    refused = apply(plane, vm("db", namespace, running=True), args=("--dry-run=server",))
    assert "[virt-admit/vm-running-and-run-strategy]" in refused.stderr
    fine = apply(plane, vm("db", namespace), args=("--dry-run=server", "-o", "json"))
    assert json.loads(fine.stdout)["spec"]["template"]["spec"]["evictionStrategy"] == "LiveMigrate"
    assert plane.kubectl("get", "vm", "db", "-n", namespace).returncode == 1


def test_several_objects_each_named_in_the_answer(plane, namespace):
    answer = apply(
        plane,
        vm("one", namespace, running=True),
        vm("two", namespace),
        vm("three", namespace, running=False),
    )
    assert answer.returncode == 1
    assert f"VirtualMachine {namespace}/one: " in answer.stderr
    assert f"VirtualMachine {namespace}/three: " in answer.stderr
    assert "virtualmachine.kubevirt.io/two created" in answer.stdout


class TestOldFaults:
    """What was stored before virt-admit came."""

    @pytest.fixture
    def old(self, plane, namespace):
        plane.kubectl("label", "namespace", namespace, f"{manifests.IGNORE_LABEL}=true", check=True)
        eventually(lambda: apply(plane, vm("old", namespace, running=True)).returncode == 0)
        plane.kubectl("label", "namespace", namespace, f"{manifests.IGNORE_LABEL}-", check=True)
        eventually(
            lambda: (
                apply(
                    plane, vm("new", namespace, running=True), args=("--dry-run=server",)
                ).returncode
            )
        )
        return namespace

    def test_an_unrelated_edit_passes(self, plane, old):
        edited = plane.kubectl("label", "vm", "old", "-n", old, "owner=finance")
        assert edited.returncode == 0, edited.stderr
        patched = plane.kubectl(
            "patch", "vm", "old", "-n", old, "--type=merge",
            "-p", '{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":60}}}}',
        )  # fmt: skip
        assert patched.returncode == 0, patched.stderr
        assert "[virt-admit/vm-running-and-run-strategy]" in patched.stderr  # a warning now

    def test_a_new_fault_is_refused(self, plane, old):
        patched = plane.kubectl(
            "patch",
            "vm",
            "old",
            "-n",
            old,
            "--type=merge",
            "-p",
            '{"spec":{"runStrategy":"Halted"}}',
        )
        assert patched.returncode == 1
        assert "[virt-admit/vm-running-and-run-strategy]" in patched.stderr

    def test_repairing_it_passes(self, plane, old):
        patched = plane.kubectl(
            "patch", "vm", "old", "-n", old, "--type=merge", "-p", '{"spec":{"running":null}}'
        )
        assert patched.returncode == 0, patched.stderr

    def test_deleting_it_passes_finalizers_included(self, plane, old):
        plane.kubectl(
            "patch",
            "vm",
            "old",
            "-n",
            old,
            "--type=merge",
            "-p",
            '{"metadata":{"finalizers":["example.com/x"]}}',
            check=True,
        )
        plane.kubectl("delete", "vm", "old", "-n", old, "--wait=false", check=True)
        freed = plane.kubectl(
            "patch",
            "vm",
            "old",
            "-n",
            old,
            "--type=merge",
            "-p",
            '{"metadata":{"finalizers":null}}',
        )
        assert freed.returncode == 0, freed.stderr
        assert plane.kubectl("get", "vm", "old", "-n", old).returncode == 1


def test_a_webhook_that_is_down_stops_nobody(crds, plane, tmp_path):
    webhook = plane.webhook
    webhook.stop()
    try:
        plane.kubectl("create", "namespace", "down", check=True)
        answer = apply(plane, vm("db", "down", running=True))
        assert answer.returncode == 0, answer.stderr
    finally:
        webhook.start()


def run(plane, *words):
    done = plane.kubectl(*words)
    assert done.returncode == 0, done.stderr


def life_of_virtual_machine(plane, kind, namespace):
    """Create an object with a template of a VM, change its annotations, and delete it."""
    obj = {**vm("odd", namespace), "kind": kind}
    if kind == "VirtualMachineInstance":
        obj["spec"] = obj["spec"]["template"]["spec"]
    if kind == "VirtualMachineInstanceReplicaSet":
        selector = {"matchLabels": {"a": "b"}}
        obj["spec"] = {"selector": selector, "template": obj["spec"]["template"]}
    made = apply(plane, obj, args=("--validate=false",))
    assert made.returncode == 0, made.stderr
    resource = f"{kind.lower()}s.kubevirt.io"
    for change in ('{"metadata":{"annotations":{"a":"b"}}}', '{"metadata":{"annotations":null}}'):
        run(plane, "patch", resource, "odd", "-n", namespace, "--type=merge", "-p", change)
    run(plane, "delete", resource, "odd", "-n", namespace, "--wait=false")


def life_of_node(plane):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-9"}}
    assert apply(plane, node).returncode == 0
    for change in (
        '{"spec":{"unschedulable":true}}',
        '{"spec":{"unschedulable":null}}',
        '{"metadata":{"labels":{"remediation.medik8s.io/exclude-from-remediation":"yes"}}}',
        '{"metadata":{"annotations":{"node-labeller.kubevirt.io/skip-node":"false"}}}',
        '{"metadata":{"annotations":null,"labels":null}}',
    ):
        run(plane, "patch", "node", "worker-9", "--type=merge", "-p", change)
    run(plane, "delete", "node", "worker-9")


def life_of_machine(plane, kind, namespace):
    machine = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": kind,
        "metadata": {"name": "m", "namespace": namespace},
        "spec": {"replicas": 2} if kind == "MachineSet" else {},
    }
    assert apply(plane, machine, args=("--validate=false",)).returncode == 0
    resource = f"{kind.lower()}s.machine.openshift.io"
    if kind == "MachineSet":
        run(plane, "scale", resource, "m", "-n", namespace, "--replicas=1")
    run(plane, "delete", resource, "m", "-n", namespace, "--wait=false")


def test_every_match_condition_is_evaluated_without_an_error(plane, namespace):
    """Under ``Fail`` an error in a condition would refuse the request: create, update, delete,
    missing fields.
    """
    plane.kubectl("create", "namespace", "openshift-machine-api")
    register(plane, plane.webhook, failure_policy="Fail")
    kinds = ("VirtualMachine", "VirtualMachineInstanceReplicaSet", "VirtualMachineInstance")
    try:
        for kind in kinds:
            life_of_virtual_machine(plane, kind, namespace)
        life_of_node(plane)
        for kind in ("Machine", "MachineSet"):
            life_of_machine(plane, kind, "openshift-machine-api")
    finally:
        register(plane, plane.webhook)


def test_an_object_with_too_many_values_is_admitted_with_a_warning(plane, namespace):
    expression = {"key": "zone", "operator": "In", "values": [""] * 180_000}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    crowded = vm("db", namespace, template={"affinity": affinity})
    said = "Warning: not judged by "
    created = plane.kubectl("create", "-f", "-", input=json.dumps(crowded))
    assert created.returncode == 0, created.stderr
    assert created.stdout == "virtualmachine.kubevirt.io/db created\n"
    assert said in created.stderr
    assert "the object is too large to review in time; run: virt-admit check" in created.stderr
    changed = plane.kubectl("label", "vm", "db", "-n", namespace, "a=b")
    assert changed.returncode == 0
    assert said in changed.stderr
    assert plane.kubectl("delete", "vm", "db", "-n", namespace).returncode == 0
