"""A virtual machine that must live-migrate cannot migrate.

**Why.** With ``LiveMigrate`` KubeVirt refuses to evict a VM that cannot migrate. The node never
becomes empty, so drains, configuration rollouts and cluster upgrades stop. KubeVirt reports nothing
before the drain, and then only the first reason.

**Fix.** Remove each reason, or set ``LiveMigrateIfPossible`` or ``None``: then a drain shuts the
guest down. With ``runStrategy: RerunOnFailure`` the VM would stay off after that, so set
``runStrategy: Always`` as well. A VM that is a node of a guest cluster (Cluster API provider
KubeVirt) needs ``External`` in the template of its Machine: the provider then drains that node.
"""

from typing import Final

from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model import messages
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import expand, migratability, vms
from virt_admit.model.kubevirt.instances.expand import Strategy
from virt_admit.model.kubevirt.instances.migratability import Migratable, Reason
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.problems import problem_of
from virt_admit.rule import Action, Context, DrainAdvice, Finding, Findings, Object, rule, union


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=union(migratability.READS, changed_disks.of_judged_vm(changed_disks.DISK_READS)),
    action=Action.WARN,
    drain_advice=DrainAdvice.NO_MIGRATION,
    event="DrainBlocked",
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "kubevirt/kubevirt:pod-eviction-admitter.go#admitLauncherPod",
        "kubevirt/kubevirt:pkg/virt-handler/vm.go#calculateLiveMigrationCondition",
        "kubevirt/kubevirt:pkg/monitoring/rules/alerts/vms.go#VMCannotBeEvicted",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if not vms.vmi_spec(obj).is_map:
        return
    strategy = context.cached(expand.strategy, obj)
    if strategy.value != "LiveMigrate":
        return
    assessment = context.cached(migratability.assess, obj)
    if assessment.migratable is not Migratable.YES:
        changed = changed_disks.brief(obj, context.cluster)
        worker = not changed and vms.is_worker(obj)
        accepted = f"set {versions.shut_down_strategies(context.cluster)}"
        remedy = _EXTERNAL if worker else changed or accepted
        if not changed and not worker and vms.run_strategy(vms.vm_spec(obj)) == "RerunOnFailure":
            remedy += " with runStrategy Always"
        for reason in assessment.reasons:
            only = changed or worker
            found = _finding(reason._replace(remedy="") if only else reason, strategy, remedy)
            yield found._replace(
                problem=problem_of(reason.name, obj),
                command=_explain(obj) if worker else changed_disks.command(obj, context.cluster),
            )
    yield from map(Unseen, assessment.unseen)


def _explain(obj: Object) -> str:
    """Return the command that names the Machine of a VM, and how it leaves its node."""
    vm = argument(f"vm/{obj.name}")
    return shell("virt-admit", "explain", vm, "-n", argument(vms.namespace_of(obj)))


_EXTERNAL: Final = "set External in the template of its Machine"
_SHORTEST: Final = 20
"""Fewest characters of the problem text that are still useful."""


def _finding(reason: Reason, strategy: Strategy, remedy: str) -> Finding:
    consequence = f"drains hang ({strategy.phrase})" if strategy.origin else "drains hang"
    either = messages.sentence(f"{reason.remedy}, or {remedy}" if reason.remedy else remedy)
    # the full stop is the first thing to drop in a long message
    only = messages.sentence(remedy).rstrip(".")
    available = check.room(reason.path) - len(f"{reason.name}: ; {consequence}. {only}")
    what = reason.what.partition(", which ")[0]  # the explanation goes first
    shortened = messages.cut(what, max(available, _SHORTEST))
    return Finding(
        reason.path,
        check.first_that_fits(
            reason.path,
            f"the VM cannot migrate ({reason.name}: {reason.what}), so {consequence}. {either}",
            f"cannot migrate ({reason.name}: {reason.what}), so {consequence}. {either}",
            f"{reason.name}: {reason.what}; {consequence}. {either}",
            f"{reason.name}: {shortened}; {consequence}. {only}",
            f"{reason.name}: drains hang. {only}.",
        ),
        value=[reason.name, reason.value],
    )
