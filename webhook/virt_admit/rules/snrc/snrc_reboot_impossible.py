"""Software reboot is disabled although some nodes have no watchdog.

**Why.** Such a node has no way to reboot itself. SNR cannot remediate it, so its workload is not
moved to another node.

**Fix.** Keep ``isSoftwareRebootEnabled`` at ``true``, or install a watchdog device on every node.
"""

from virt_admit.model.kubernetes.kinds import NODE, SNR_CONFIG
from virt_admit.model.remediation.remediators import REBOOT_CAPABLE, WATCHDOG, watchdog
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, gather, names, rule


@rule(
    kinds=(SNR_CONFIG,),
    reads={NODE: (f"metadata.annotations.{WATCHDOG}", f"metadata.annotations.{REBOOT_CAPABLE}")},
    action=Action.WARN,
    sources=("medik8s/self-node-remediation:internal/utils/annotations.go#UpdateNodeAnnotations",),
)
def check(config: Object, context: Context) -> Findings:
    enabled = config.at("spec", "isSoftwareRebootEnabled")
    if enabled.value is not False:
        return
    stuck, unseen = gather(
        node.name for node in context.cluster.list(NODE) if _without_watchdog(node)
    )
    if stuck:
        yield Finding(
            enabled.path,
            "these nodes have no watchdog and cannot reboot themselves without software reboot: "
            f"{names(stuck)}. Set it to true.",
            value=tuple(sorted(stuck)),
        )
    if unseen:
        yield Unseen(unseen)


def _without_watchdog(node: Object) -> bool:
    return watchdog(node) == 0 or node.annotations.get(REBOOT_CAPABLE) == "false"
