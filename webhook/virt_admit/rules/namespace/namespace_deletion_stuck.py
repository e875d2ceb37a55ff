"""A namespace stays Terminating for long.

**Why.** The namespace controller waits for objects in it that have finalizers, or it cannot delete
some. No VM can be created or migrated in the namespace meanwhile, and none with its name can be
made.

**Fix.** Repair what keeps the objects that the finding names. Do not remove the finalizer of the
namespace itself: its objects would be left behind.
"""

from collections.abc import Iterator

from virt_admit.forecasts.drain.control import stuck_deletions
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import API_SERVICE, NAMESPACE, VM, VMI
from virt_admit.model.messages import ended, sentence
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NAMESPACE,),
    reads=stuck_deletions.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    of_deleted=True,
    sources=(
        (
            "kubernetes/kubernetes:pkg/controller/namespace/deletion/"
            "namespaced_resources_deleter.go#deleteAllContent"
        ),
        "kubernetes/kubernetes:pkg/controller/namespace/deletion/status_condition_utils.go",
    ),
)
def check(namespace: Object, context: Context) -> Findings:
    if namespace.deleted and (blind := [*_unread(context.cluster)]):
        yield from blind
        return
    stuck = stuck_deletions.of_namespace(namespace, context.cluster)
    if stuck is not None:
        path = namespace.at("status", "phase").path
        message = f"{ended(stuck.reason)} {sentence(stuck.remedy)}"
        yield Finding(path, message, value=namespace.name, command=stuck.command)


def _unread(cluster: Cluster) -> Iterator[Unseen]:
    """Yield what could not be read of the objects whose findings say what keeps a namespace."""
    for kind in (VM, VMI, NAMESPACE, API_SERVICE):
        yield from more_may_exist(cluster, kind)
