"""The VM names one instance type or preference, and the copy of another one in ``revisionName``.

**Why.** The copy wins: KubeVirt keeps the size and the settings of the former instance type, and
the new name has no effect.

**Fix.** Remove ``revisionName`` together with the change of the name: KubeVirt then makes a new
copy.
"""

from virt_admit.model.kubevirt.instances import expand
from virt_admit.rule import POOL, VM, Action, Context, Finding, Findings, Object, Unseen, rule


@rule(
    kinds=(VM, POOL),
    only_with=("instancetype", "preference"),
    reads=expand.READS,
    action=Action.WARN,
    sources=("kubevirt/kubevirt:pkg/instancetype/find/revision.go#Find", "kubevirt/kubevirt#9132"),
)
def check(obj: Object, context: Context) -> Findings:
    for found in expand.other_copies(obj, context.cluster):
        if isinstance(found, Unseen):
            yield found
        else:
            path, words, made_of = found
            yield Finding(
                path,
                f"this copy of {made_of} wins over {words}, so the name has no effect. Remove "
                "revisionName.",
            )
