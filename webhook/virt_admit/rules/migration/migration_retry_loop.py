"""A VM is migrated again and again, in vain.

**Why.** Migrations that a drain or an update asks for are repeated without end; each attempt takes up to five minutes
or more. Meanwhile the drain does not end, and the VM stays outdated. Only the five newest attempts are kept.

**Fix.** Remove the reason: an obsolete CPU model, no other node that fits, or limits that no migration can keep. Only
``scan`` and ``check`` report this.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Unseen, more_may_exist
from virt_admit.model.kinds import VMI, VMIM
from virt_admit.model.kubevirt import configuration, drain, migrations
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(vmi: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    failed = migrations.failed_in_a_row(vmi, context.cluster)
    if len(failed) >= migrations.RETRY_LOOP:
        why = _reason(vmi, failed[-1], context)
        yield Finding(
            vmi["status"]["migrationState"].path,
            f"its last {len(failed)} automatic migrations failed and are repeated for ever: {why}",
            value=len(failed),
        )
    yield from more_may_exist(context.cluster, VMIM)


def _reason(vmi: Object, last: Object, context: Context[NoParams]) -> str:
    model = vmi.at("spec", "domain", "cpu", "model").text
    if model in configuration.obsolete_models(context.cluster):
        return f"its CPU model {model} is obsolete, give it another"
    trouble = drain.nowhere_to_go(vmi, context.cluster, moves=True)
    if trouble is not None:
        return f"{trouble.reason}; {trouble.remedy}"
    said = last.at("status", "migrationState", "failureReason").text
    if said:
        return f"{last.name} says {show(said)}"
    return f"see migration {last.name}, and the time and bandwidth that migrations are given"


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VMI,),
    reads=drain.READS,
    action=Action.WARN,
    check=check,
    at_admission=False,
    sources=(
        "OpenShift Virtualization, Updates 6.2.1",
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",
    ),
)
