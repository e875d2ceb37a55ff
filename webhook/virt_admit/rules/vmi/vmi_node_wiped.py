"""A new start of a VM has wiped the node of a tenant cluster that it is.

**Why.** A disk of the kind ``containerDisk`` or ``ephemeral`` begins again with each VMI. The node
loses what it had joined its cluster with, and the token in its bootstrap data has ended. The VM
runs, and its Machine stays without a healthy node. Where no MachineHealthCheck watches the Machine,
nothing replaces it.

**Fix.** Delete the Machine: its MachineSet makes another one with new bootstrap data. Give the
template of the Machines a root disk that stays, as a DataVolume, and create a MachineHealthCheck.
"""

from virt_admit.forecasts.remediation.unwatched import wiped_guests
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.messages import advice_of, command_of, ended
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(VMI,),
    reads=wiped_guests.READS,
    action=Action.WARN,
    urgency=Urgency.DOWN,
    at_admission=False,
    sources=(
        "https://github.com/kubernetes-sigs/cluster-api-provider-kubevirt/issues/70",
        (
            "kubernetes-sigs/cluster-api:bootstrap/kubeadm/internal/controllers/"
            "kubeadmconfig_controller.go#refreshBootstrapTokenIfNeeded"
        ),
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    found = wiped_guests.of_vmi(vmi, context.cluster)
    if found is None:
        return
    path, advice = found.volume["name"].path, advice_of(found.remedy)
    said = (f"{ended(each)} {advice}" for each in (found.reason, found.brief))
    message = check.first_that_fits(path, *said)
    value = found.volume["name"].text
    yield Finding(path, message, value=value, command=command_of(found.remedy))
