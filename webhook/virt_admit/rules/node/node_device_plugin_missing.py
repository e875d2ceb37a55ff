"""The device plugin of other nodes is kept off a node, so the node does not offer its devices.

**Why.** VMs that need such a device wait for other nodes, as if this one never had it. Software of
NVIDIA takes its pods from a node while it changes a profile, by the value of a label
(``paused-for-vgpu-change``). If its own pod is replaced meanwhile, nothing takes the value back.

**Fix.** Set the label to the value that the DaemonSet selects, or let the DaemonSet tolerate the
taint. A change that goes on is not told: its writer takes the value back.
"""

from virt_admit.forecasts.drain.starts.devices import kept_off_plugins
from virt_admit.model.messages import advice_of, command_of
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NODE,),
    reads=kept_off_plugins.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "NVIDIA/vgpu-device-manager:cmd/nvidia-k8s-vgpu-dm/main.go#shutdownGPUOperands",
        "https://github.com/NVIDIA/gpu-operator/issues/2845",
        "kubernetes/kubernetes:pkg/controller/daemon/daemon_controller.go#NodeShouldRunDaemonPod",
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = kept_off_plugins.of_node(node, context.cluster)
    if found is None or not found.lasts:
        return
    path = node.metadata["labels"].path
    left = f": {found.paused.left}" if found.paused is not None else ""
    first = advice_of(found.remedy.partition(";")[0])
    message = check.first_that_fits(
        path,
        f"{found.words}. {advice_of(found.remedy)}",
        f"{found.words}. {first}",
        f"{found.brief}{left}. {first}",
        f"{found.brief}. {first}",
    )
    yield Finding(path, message, value=node.name, command=command_of(found.remedy))
