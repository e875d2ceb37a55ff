"""A virtual machine sets an ``evictionStrategy`` that is not a valid value.

**Why.** The schema accepts any text. KubeVirt accepts four values, case-sensitive, and rejects the
VM otherwise. An upstream runbook wrongly recommends ``shutdown``, which does not exist. While
KubeVirt's release cannot be read, a word that resembles no known one is only a warning, because a
newer release may accept it.

**Fix.** Write one of None (shut down), LiveMigrate, LiveMigrateIfPossible (migrate, otherwise shut
down) or External (a controller outside KubeVirt acts). Use the parameter ``also`` to allow values
of a newer KubeVirt.
"""

from dataclasses import dataclass
from typing import Final

from virt_admit.model import messages
from virt_admit.model.kubernetes.kinds import KUBEVIRT, POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Patch, param, rule

_ALIASES: Final = {"shutdown": "None", "livemigration": "LiveMigrate", "migrate": "LiveMigrate"}
_SINCE: Final = {
    "External": Feature.EXTERNAL,
    "LiveMigrateIfPossible": Feature.LIVE_MIGRATE_IF_POSSIBLE,
}


@dataclass(frozen=True)
class Params:
    also: tuple[str, ...] = param((), "more eviction strategies to accept")


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    only_with=("evictionStrategy",),
    reads={KUBEVIRT: ()},
    action=Action.DENY,
    params=Params(),
    fixable=True,
    sources=(
        "kubevirt/kubevirt:vmi-create-admitter.go#validateLiveMigration",
        "kubevirt/monitoring:docs/runbooks/VMCannotBeEvicted.md",
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    strategy = vms.vmi_spec(obj)["evictionStrategy"]
    if not strategy.present:
        return
    known = vms.EVICTION_STRATEGIES
    if strategy.value not in (*known, *context.params.also):
        suggestion = messages.did_you_mean(strategy.value, known, _ALIASES)
        newer = versions.may_accept(context.cluster, strategy.value, suggestion)
        yield Finding(
            strategy.path,
            messages.unknown(strategy.value, known, suggestion, newer=newer),
            cause=Cause.NOT_SUPPORTED,
            max_action=Action.WARN if newer else Action.DENY,
            fix=(Patch("replace", strategy.path, suggestion),) if suggestion and not newer else (),
            why="the value is misspelt",
        )
    elif strategy.value in _SINCE:
        since = _SINCE[strategy.value].since
        if not versions.has_release(context.cluster, since):
            yield Finding(
                strategy.path,
                f"{strategy.value} needs KubeVirt {since} or later, but this cluster runs "
                f"{versions.kubevirt_version(context.cluster)}. "
                "Write None or LiveMigrate.",
                cause=Cause.NOT_SUPPORTED,
                max_action=Action.WARN,
            )
