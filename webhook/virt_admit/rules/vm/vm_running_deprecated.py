"""A virtual machine uses the deprecated key ``running``.

**Why.** ``running`` knows on and off only: a VM that shall be run again after a failure alone, once, or at the
request of a person cannot be described with it. KubeVirt warns of it since about release 1.4.

**Fix.** Write ``runStrategy: Always`` instead of ``running: true``, ``runStrategy: Halted`` instead of
``running: false``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import POOL, VM
from virt_admit.model.kubevirt import vms
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(vm: Object, _: Context[NoParams]) -> Iterator[Finding]:
    spec = vms.vm_spec(vm)
    running = spec["running"]
    if not running.present or spec["runStrategy"].present or not vms.vmi_spec(vm).is_map:
        return
    instead = vms.run_strategy(spec) or "Always or Halted"
    yield Finding(running.path, f"running is deprecated; write runStrategy: {instead} instead, and remove running")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM, POOL),
    action=Action.WARN,
    check=check,
    sources=("kubevirt/kubevirt#11993", "OpenShift Virtualization, Nodes 10.1.2"),
)
