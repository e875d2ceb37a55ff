"""The update of the storage of VMs does not go on: of Ceph by Rook, or of Longhorn.

**Why.** Rook changes no daemon while Ceph is HEALTH_ERR, which new monitors alone can make it, and
skips the OSDs of nodes with a taint that spec.placement does not tolerate. New instance managers of
Longhorn need room beside the former ones, which run as long as a volume is attached; meanwhile no
volume is attached again, so a VM that restarts stays down.

**Fix.** End what the finding names. ``virt-admit upgrade`` has the whole reason, and the remedy
with its command.
"""

from virt_admit.model.commands import shell
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, LONGHORN_MANAGER
from virt_admit.model.kubernetes.reads import LateReads, Reads
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


def _reads() -> Reads:
    from virt_admit.forecasts.placement.components.drivers import storage_rollouts  # noqa: PLC0415 - see LateReads

    return storage_rollouts.READS


@rule(
    kinds=(CEPH_CLUSTER, LONGHORN_MANAGER),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "rook/rook:pkg/operator/ceph/cluster/version.go#validateCephVersion",
        "rook/rook:pkg/operator/ceph/cluster/osd/update.go#updateExistingOSDs",
        "longhorn/longhorn-manager:controller/node_controller.go#syncInstanceManagers",
        "https://github.com/longhorn/longhorn/issues/7025",
    ),
)
def check(storage: Object, context: Context) -> Findings:
    from virt_admit.forecasts.placement.components.drivers import storage_rollouts  # noqa: PLC0415 - few have it

    for found in storage_rollouts.held(context.cluster):
        own = found.owner
        if (own.kind, own.full_name) == (storage.kind, storage.full_name):
            path = storage.metadata["name"].path
            advice = advice_of(found.remedy)
            message = check.first_that_fits(
                path,
                f"{found.reason}. {advice}",
                f"{found.brief}. {advice}",
                f"{found.reason}.",
                f"{found.brief}.",
            )
            told = command_of(found.remedy) if advice in message else ""
            yield Finding(
                path,
                message,
                value=storage.name,
                max_action=Action.WARN if found.holds else Action.AUDIT,
                problem=problem_of(ProblemCause.UPDATE_FAILING, storage),
                command=told or shell("virt-admit", "upgrade"),
            )
