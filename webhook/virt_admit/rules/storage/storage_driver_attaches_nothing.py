"""A CSI driver attaches no volume, because its login, its connection or its backend fails, or
its controller is down.

**Why.** VMs that run go on, and nothing reports them. No VM with a volume of that driver starts,
and none can migrate: its target pod needs a new attachment. A drain of its node does not end. The
finding is about volumes that fail alike on several nodes for minutes while none has been attached,
about keys that the driver cannot read, about a controller of which no pod is ready, its own or
kube-controller-manager, or about a backend that is not online: then it is open whether other nodes
get its volumes.

**Fix.** Repair what the finding names: the backend, the keys, or the way to the storage. Drain no
node before that.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import CSI_DRIVER
from virt_admit.model.kubernetes.reads import LateReads, Reads
from virt_admit.model.messages import advice_of, command_of, sentence
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, names, rule


def _reads() -> Reads:
    from virt_admit.forecasts.placement.components.drivers import driver_faults  # noqa: PLC0415 - LateReads

    return driver_faults.READS


@rule(
    kinds=(CSI_DRIVER,),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.DOWN,
    at_admission=False,
    sources=(
        "kubernetes-csi/external-attacher:pkg/controller/csi_handler.go",
        "NetApp/trident:storage/backend.go#ensureOnlineOrDeleting",
        "https://github.com/NetApp/trident/issues/676",
        "https://github.com/rook/rook/issues/18254",
    ),
)
def check(driver: Object, context: Context) -> Findings:
    from virt_admit.forecasts.placement.components.drivers import driver_faults  # noqa: PLC0415 - LateReads

    path = driver.metadata["name"].path
    for fault in dict.fromkeys(driver_faults.all_of(driver.name, context.cluster)):
        if fault.error and not fault.certain:
            continue  # one volume or one node fails, which may be a fault of its own
        waits = f" Claims {names(fault.claims, 80)} wait for it." if fault.claims else ""
        begin = f"CSI driver {driver.name}"
        stays = _STAYS if fault.certain else _MAY_STAY
        choices = (
            f"{reason.replace(begin, 'it', 1)}.{text}{stays} {advice}"
            for reason in dict.fromkeys((fault.reason, fault.brief))
            for advice in _advice(fault.remedy)
            for text in dict.fromkeys((waits, ""))
        )
        message = check.first_that_fits(path, *choices)
        yield Finding(path, message, command=command_of(fault.remedy))


_STAYS = " No VM with its volumes starts or migrates."
_MAY_STAY = " Its volumes may not be attached elsewhere."


def _advice(remedy: str) -> Iterator[str]:
    """Yield a remedy without its command, then the first step of it."""
    whole = advice_of(remedy)
    yield whole
    yield sentence(whole.partition("; ")[0])
    yield sentence(whole.partition("; ")[0].partition(", ")[0])
