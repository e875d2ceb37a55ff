"""A remedy that is too long for a finding leaves room for the cause."""

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.rules.vmi import vmi_evacuation_stuck
from virt_admit.rules.webhook import webhook_bundle_expired

CAUSE = "no other node can take it: none has any bridge.network.kubevirt.io/br1"
FIRST = "write a second policy for worker-2"


def waits(rest):
    vmi = manifest(
        "kubevirt.io/v1", "VirtualMachineInstance", "db", "shop", status={"evacuationNodeName": "a"}
    )
    mark = vmi.at("status", "evacuationNodeName")
    cluster = Snapshot([vmi], complete=["*"])
    return vmi_evacuation_stuck._waits(
        mark, CAUSE, f"{FIRST}, {rest}: virtctl stop db -n shop", cluster
    )


def test_the_cause_stays_and_the_last_way_has_no_command():
    found = waits("as another port would break the others, " * 12 + "or stop it")
    assert f"for this VMI: {CAUSE}. {FIRST.capitalize()}." in found.message
    assert not found.command


def test_a_short_remedy_is_said_with_its_command():
    found = waits("or stop it")
    assert f"{CAUSE}. {FIRST.capitalize()}, or stop it." in found.message
    assert found.command == "virtctl stop db -n shop"


def test_only_the_templates_of_kubevirt_have_a_lasting_remedy():
    def lasting(group):
        own = manifest("apiregistration.k8s.io/v1", "APIService", "v1", spec={"group": group})
        return webhook_bundle_expired._lasting(own)

    assert "disabledFeatureGates" in lasting("subresources.template.kubevirt.io")
    assert not lasting("subresources.kubevirt.io")
