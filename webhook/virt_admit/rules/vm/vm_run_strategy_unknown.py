"""A virtual machine sets a ``runStrategy`` that is not a valid value.

**Why.** The schema accepts any text. KubeVirt accepts six values, case-sensitive, and rejects the
VM otherwise. ``WaitAsReceiver`` exists since KubeVirt 1.6 and needs the feature gate
DecentralizedLiveMigration, which is off by default before 1.10. While KubeVirt's release cannot be
read, an unknown word that resembles no known one is a warning.

**Fix.** Write one of Always, RerunOnFailure, Manual, Once, Halted or WaitAsReceiver. Use ``Always``
for a VM that should run, and ``Halted`` for a VM that should stay off. Use the parameter ``also``
to allow values of a newer KubeVirt.
"""

from dataclasses import dataclass
from typing import Final

from virt_admit.model import messages
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT, POOL, VM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import lifecycle, vms
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.versions import Feature, Gate
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Patch, param, rule, show

_ALIASES: Final = {
    "stopped": "Halted",
    "off": "Halted",
    "false": "Halted",
    "running": "Always",
    "on": "Always",
    "true": "Always",
}
_GATE: Final = Gate.DECENTRALIZED_LIVE_MIGRATION


@dataclass(frozen=True)
class Params:
    also: tuple[str, ...] = param((), "more run strategies to accept")


@rule(
    doc=f"{__doc__}\n{lifecycle.outcomes_table()}\n\n{lifecycle.commands_table()}\n",
    kinds=(VM, POOL),
    only_with=("runStrategy",),
    reads={KUBEVIRT: ()},
    action=Action.DENY,
    params=Params(),
    fixable=True,
    sources=(
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#VirtualMachineRunStrategy",
        "kubevirt/kubevirt:vms-admitter.go#validateRunStrategy",
        "OpenShift Virtualization, Nodes 10.1.2",
    ),
)
def check(vm: Object, context: Context[Params]) -> Findings:
    strategy = vms.vm_spec(vm)["runStrategy"]
    if not strategy.present or not vms.vmi_spec(vm).is_map:
        return
    if strategy.value == "WaitAsReceiver":
        yield from _receiver(strategy, context.cluster)
    elif strategy.value not in vms.RUN_STRATEGIES and strategy.value not in context.params.also:
        yield _unknown(strategy, context.cluster)


def _receiver(strategy: Field, cluster: Cluster) -> Findings:
    """Check the strategy that needs a feature gate; an unknown release counts as the newest,
    with the gate on.
    """
    release = versions.kubevirt_version(cluster)
    if release is not None and release < Feature.WAIT_AS_RECEIVER.since:
        why = (
            f"exists since KubeVirt {Feature.WAIT_AS_RECEIVER.since}, but this cluster runs "
            f"{release}"
        )
        remedy = "Write Halted."
    elif versions.gate_is_disabled(cluster, _GATE):
        why = f"needs feature gate {_GATE.gate}, which disabledFeatureGates switches off"
        remedy = "Write Halted, or enable the gate."
    elif release is not None and not versions.gate_may_be_on(cluster, _GATE):
        why = f"needs feature gate {_GATE.gate}, which is off by default in KubeVirt {release}"
        remedy = "Write Halted, or enable the gate."
    elif configuration.is_unread(cluster):
        raise Unseen(str(KUBEVIRT))
    else:
        return
    yield Finding(
        strategy.path,
        f"WaitAsReceiver {why}, so KubeVirt rejects the VM. {remedy}",
        cause=Cause.NOT_SUPPORTED,
        max_action=Action.WARN if versions.newer_than_known(cluster) else Action.DENY,
    )


def _unknown(strategy: Field, cluster: Cluster) -> Finding:
    # YAML reads a plain `on` as true
    word = strategy.value if strategy.boolean is None else show(strategy.value)
    suggestion = messages.did_you_mean(word, vms.RUN_STRATEGIES, _ALIASES)
    newer = versions.may_accept(cluster, strategy.value, suggestion)
    return Finding(
        strategy.path,
        messages.unknown(strategy.value, vms.RUN_STRATEGIES, suggestion, newer=newer),
        cause=Cause.NOT_SUPPORTED,
        max_action=Action.WARN if newer else Action.DENY,
        fix=(Patch("replace", strategy.path, suggestion),) if suggestion and not newer else (),
        why="the value is misspelt",
    )
