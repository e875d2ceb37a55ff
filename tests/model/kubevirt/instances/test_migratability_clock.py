"""VMIs whose clock needs the TSC frequency of the nodes."""

from tests.builders import kubevirt, manifest, node
from tests.for_each import for_each
from tests.model.kubevirt.migratability_cases import MASQUERADE, UNKNOWN, YES, T, judged, no, vm
from virt_admit.model.kubevirt.instances.tsc import TSC_FREQUENCY


def clock(enabled=True, architecture=None, policy=None):
    """A VM with reenlightenment."""
    features = [] if policy is None else [{"name": "invtsc", "policy": policy}]
    state = {} if enabled is None else {"enabled": enabled}
    domain = {
        "cpu": {"features": features},
        "features": {"hyperv": {"reenlightenment": state}},
        "devices": {"interfaces": MASQUERADE["interfaces"]},
    }
    return vm({"domain": domain, "architecture": architecture, "networks": MASQUERADE["networks"]})


NO_CLOCK = no("NoTSCFrequencyNotLiveMigratable", T + "domain.features.hyperv.reenlightenment")

SHOWS = node("a", {TSC_FREQUENCY: "2600000000"})

HIDDEN = node("a", {TSC_FREQUENCY: "26", "kubevirt.io/schedulable": "false"})

ALL_VMIS = "virtualmachineinstances.kubevirt.io"


def minimum(frequency):
    return kubevirt(developerConfiguration={"minimumClusterTSCFrequency": frequency})


MINIMUM = minimum(1)


def vmi_on(name):
    status = {"nodeName": name, "phase": "Succeeded"}
    return manifest("kubevirt.io/v1", "VirtualMachineInstance", "other", "shop", status=status)


@for_each(
    "subject, objects, complete, answer",
    [
        (clock(), [], [], UNKNOWN),
        (clock(), [], ["*"], UNKNOWN),
        (clock(), [kubevirt()], [], UNKNOWN),
        (clock(), [MINIMUM], [], YES),
        (clock(), [SHOWS, kubevirt()], [], YES),
        (clock(), [SHOWS], [], UNKNOWN),
        (clock(architecture="amd64"), [SHOWS], [], YES),
        (clock(None), [SHOWS, kubevirt()], [], YES),
        (clock(), [node("a"), kubevirt()], [], NO_CLOCK),
        (clock(None), [node("a"), kubevirt()], [], NO_CLOCK),
        (clock(), [node("a")], [], UNKNOWN),
        (clock(architecture="amd64"), [node("a")], [], UNKNOWN),
        (clock(), [node("a"), kubevirt()], ["*"], NO_CLOCK),
        (clock(), [node("a", {TSC_FREQUENCY: "0"}), kubevirt()], [], NO_CLOCK),
        (clock(), [node("a", {TSC_FREQUENCY: "2.6e9"}), kubevirt()], [], NO_CLOCK),
        (clock(), [HIDDEN, kubevirt()], [ALL_VMIS], NO_CLOCK),
        (clock(), [HIDDEN, kubevirt()], [], UNKNOWN),
        (clock(), [HIDDEN, kubevirt(), vmi_on("a")], [], YES),
        (clock(), [HIDDEN, kubevirt(), vmi_on("b")], [ALL_VMIS], NO_CLOCK),
        (clock(), [SHOWS, minimum(0)], [], NO_CLOCK),
        (clock(), [SHOWS, minimum(-1)], [], NO_CLOCK),
        (clock(enabled=False), [node("a")], [], YES),
        (clock(policy="require"), [node("a")], [], YES),
        (clock(policy="force"), [node("a")], [], YES),
        (clock(policy="optional"), [node("a"), kubevirt()], [], NO_CLOCK),
        (clock(policy=""), [node("a"), kubevirt()], [], NO_CLOCK),
        (clock(architecture="arm64"), [SHOWS], [], NO_CLOCK),
        (clock(), [SHOWS, kubevirt(status={"defaultArchitecture": "s390x"})], [], NO_CLOCK),
        (
            clock(architecture="amd64"),
            [SHOWS, kubevirt(status={"defaultArchitecture": "s390x"})],
            [],
            YES,
        ),
    ],
)
def test_the_clock(subject, objects, complete, answer):
    assert judged(subject, *objects, complete=complete) == answer
