"""The upgrade of a chart of the platform does not begin: the Job that Helm runs before it failed,
or no node takes its pod.

**Why.** Helm changes nothing before its hooks have succeeded. Longhorn, KubeVirt, Rook or Rancher
stay at their old release, and what was started as their update is not done. A chart of RKE2 itself
fails where its Job runs on a server that has not got the new release yet.

**Fix.** End what the finding names, such as a minor release of Longhorn that was skipped, and
repeat the upgrade. ``virt-admit upgrade`` has the whole reason, and the remedy with its command.
"""

from virt_admit.model.commands import shell
from virt_admit.model.kubernetes.kinds import JOB, LONGHORN_SETTING
from virt_admit.model.kubernetes.reads import LateReads, Reads
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


def _reads() -> Reads:
    from virt_admit.forecasts.placement.components.controllers import failed_hooks  # noqa: PLC0415 - see LateReads

    return failed_hooks.READS


@rule(
    kinds=(JOB, LONGHORN_SETTING),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "helm/helm:pkg/action/hooks.go#execHook",
        "longhorn/longhorn-manager:upgrade/util/util.go#checkLHUpgradePath",
        "https://github.com/longhorn/longhorn/issues/9569",
        "https://github.com/rancher/rke2/issues/7642",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    from virt_admit.forecasts.placement.components.controllers import failed_hooks  # noqa: PLC0415 - few have it

    for found in failed_hooks.told(context.cluster):
        if (found.owner.kind, found.owner.full_name) == (obj.kind, obj.full_name):
            path = obj.metadata["name"].path
            advice = advice_of(found.remedy)
            message = check.first_that_fits(
                path,
                f"{found.reason}. {advice}",
                f"{found.brief}. {advice}",
                f"{found.brief}.",
                f"{found.brief.partition(': ')[0]}.",
            )
            yield Finding(
                path,
                message,
                value=obj.name,
                problem=problem_of(ProblemCause.UPDATE_FAILING, obj),
                command=command_of(found.remedy)
                if advice in message
                else shell("virt-admit", "upgrade"),
            )
