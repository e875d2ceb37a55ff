"""A virtual machine uses the deprecated field ``running``.

**Why.** ``running`` can only switch a VM on or off. It cannot express a VM that restarts only after
a failure, runs once, or is started manually. KubeVirt 1.4 deprecated the field; for a cluster with
an older release, nothing is said.

**Fix.** Write ``runStrategy: Always`` instead of ``running: true``, or ``runStrategy: Halted``
instead of ``running: false``.
"""

from virt_admit.model.kubernetes.kinds import KUBEVIRT, POOL, VM
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature
from virt_admit.rule import Action, Context, Finding, Findings, Object, Patch, rule


@rule(
    kinds=(VM, POOL),
    only_with=("running",),
    reads={KUBEVIRT: ()},
    action=Action.WARN,
    fixable=True,
    sources=(
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#VirtualMachineSpec",
        "kubevirt/kubevirt#11993",
        "OpenShift Virtualization, Nodes 10.1.2",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    spec = vms.vm_spec(vm)
    running = spec["running"]
    if not running.present or spec["runStrategy"].present or not vms.vmi_spec(vm).is_map:
        return
    instead = vms.run_strategy(spec)
    if not versions.has_release(context.cluster, Feature.RUNNING_DEPRECATED.since):
        return
    fix = (
        (Patch("add", spec.path / "runStrategy", instead), Patch("remove", running.path))
        if instead
        else ()
    )
    new = f"runStrategy: {instead or 'Always or Halted'}"
    message = f"running is deprecated. Write {new} instead, and remove running."
    yield Finding(running.path, message, fix=fix, why="running is deprecated")
