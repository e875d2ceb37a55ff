"""Objects of the tests of ``explain``, and its text in lines."""

from tests.health_checks import make
from virt_admit.cli.commands.explain import text
from virt_admit.reports.explain.check.report import report
from virt_admit.reports.values import as_data

SNR = make(
    "self-node-remediation.medik8s.io/v1alpha1",
    "SelfNodeRemediationTemplate",
    "auto",
    "wa",
    spec={"template": {"spec": {}}},
)


def vm(name, strategy, where):
    owner = {
        "kind": "VirtualMachine",
        "name": name,
        "controller": True,
        "apiVersion": "kubevirt.io/v1",
    }
    vmi = make(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        name,
        "shop",
        status={"nodeName": where, "phase": "Running"},
    )
    vmi.data["metadata"]["ownerReferences"] = [owner]
    return [
        make("kubevirt.io/v1", "VirtualMachine", name, "shop", spec={"runStrategy": strategy}),
        vmi,
    ]


def lines(explanation):
    return [" ".join(line.split()) for line in text(explanation).splitlines()]


def data_of(explanation):
    return as_data(report(explanation))
