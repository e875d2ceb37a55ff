"""A clone would be a VM that the policy denies.

**Why.** KubeVirt's controller creates the clone and applies the patches, and its requests are not
reviewed. A fault that the policy denies to the user gets into the cluster.

**Fix.** Change the patch or the filter that the message names. If it names the source, correct the
source first, or add a patch that removes the fault.

The clone is judged as if its user created the VM in the same namespace. Only rules whose class is
`deny` there count.
"""

from collections.abc import Callable

from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import VM_CLONE
from virt_admit.model.kubevirt.instances import clones
from virt_admit.rule import Action, Context, Finding, Findings, Judgement, Object, Path, names, rule

SOURCE = Path("spec", "source", "name")


@rule(
    kinds=(VM_CLONE,),
    reads=clones.READS,
    action=Action.WARN,
    in_scan=False,  # the VM of the clone is scanned itself, and the source has changed meanwhile
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/clone/vm-target.go#generatePatches",
        "kubevirt/kubevirt:pkg/storage/snapshot/restore.go#generateRestoredVMSpec",
        "kubevirt/kubevirt:pkg/storage/snapshot/restore.go#patchVM",
    ),
)
def check(clone: Object, context: Context) -> Findings:
    source = clones.source(clone, context.cluster)
    steps = clones.steps(clone, source)
    judged: dict[int, Judgement] = {}

    def after(count: int) -> Judgement:
        if count not in judged:
            judged[count] = context.judge(clones.patched(clone, source, steps[:count]))
        return judged[count]

    faults: dict[Path, dict[str, None]] = {}
    for key, fault in after(len(steps)).denied.items():
        first = _first(lambda count, key=key: key in after(count).denied, len(steps))  # type: ignore[misc]
        faults.setdefault(steps[first - 1].path if first else SOURCE, {})[fault] = None
    for path, found in faults.items():
        yield Finding(path, _message(path, names(found, 90)), value=tuple(found))
    for what in after(len(steps)).unseen:
        yield Unseen(what)


def _first(holds: Callable[[int], bool], count: int) -> int:
    """Return a number of steps after which this holds, and does not hold after one step less; 0 if
    it holds from the start.

    It holds after all of them. Bisection, because each question is a review of a VM.
    """
    if holds(0):
        return 0
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _message(path: Path, faults: str) -> str:
    if path == SOURCE:
        return (
            f"the policy denies this VM, and KubeVirt clones it unreviewed: {faults}. Correct the "
            "source, or add a patch."
        )
    return (
        f"the policy denies the VM that this gives, and KubeVirt creates it unreviewed: {faults}. "
        "Change it."
    )
