"""PodDisruptionBudgets that an operator writes: whether it makes way for a drain, waits,
or really refuses.

The form of such a budget says little: the operator moves or removes it when a node is cordoned, and
writes it back when another client changes it. It often protects the last copy of data. Sources:
cloudnative-pg/cloudnative-pg:pkg/specs/poddisruptionbudget.go,
:internal/controller/replicas.go#reconcileTargetPrimaryFromPods; noobaa/noobaa-operator:pkg/cnpg
(OpenShift Data Foundation has its own build of it, with another API group);
strimzi/drain-cleaner:README.md;
elastic/cloud-on-k8s:pkg/controller/elasticsearch/pdb/reconcile_default.go;
openshift/cluster-image-registry-operator:pkg/resource/poddisruptionbudget.go.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import (
    absent_operators,
    drain_cleaner,
    guard_budgets,
    longhorn_budgets,
    pod_budgets,
    pod_counts,
    postgres_budgets,
)
from virt_admit.forecasts.drain.budgets.operator_eviction import (
    GOES,
    OperatorAnswer,
    Owner,
    PodEviction,
    Way,
    drained_around,
    is_schedulable,
    node_of,
    not_ready,
    owner_of,
    owners,
    selected_labels,
)
from virt_admit.forecasts.drain.budgets.rook import rook_budgets
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import (
    BUILT_IN_GROUPS,
    CNPG_CLUSTER,
    ELASTICSEARCH,
    NOOBAA_CLUSTER,
    PDB,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.lookups import find

READS: Final = union(
    absent_operators.READS,
    longhorn_budgets.READS,
    drain_cleaner.READS,
    guard_budgets.READS,
    postgres_budgets.READS,
    rook_budgets.READS,
    {
        CNPG_CLUSTER: ("metadata.ownerReferences", "spec.instances"),
        NOOBAA_CLUSTER: ("metadata.ownerReferences", "spec.instances"),
        ELASTICSEARCH: ("spec.nodeSets", "status.health"),
    },
)
"""The fields that show what an operator does with its budget during a drain."""


class Operator(NamedTuple):
    """An operator that writes budgets."""

    name: str
    wrote: Callable[[Object], bool]
    """Whether a budget is one of its own."""
    judge: Callable[[PodEviction], OperatorAnswer | None]
    """What it does about an eviction. None: nothing, so that the form of the budget decides.
    Raises Unseen.
    """
    overrules: bool = False
    """Whether it is asked about an eviction that its budget allows: others let that pod go."""


def operator(budget: Object) -> Operator | None:
    """Return the operator that writes a budget, or None if a user or a chart wrote it."""
    return next((known for known in _OPERATORS if known.wrote(budget)), None)


def is_unknown(budget: Object) -> bool:
    """Whether an operator writes a budget of which is not known what it does about a drain."""
    return operator(budget) is _OPERATORS[-1]


def judge(pod: Object, budget: Object, never: str, cluster: Cluster) -> OperatorAnswer | None:
    """Return what the operator of a budget does about the eviction of a pod.

    None: the form of the budget decides.

    Args:
        never: why the form of the budget can never allow an eviction; empty: it can.

    Raises:
        Unseen: it cannot be determined, with the operator, the budget and the reason.
    """
    known, eviction = operator(budget), PodEviction(pod, budget, never, cluster)
    if known is None:
        return None
    if eviction.allowed and not known.overrules:
        return GOES
    try:
        answer = known.judge(eviction)
        return _shown(absent_operators.held(known.name, answer, cluster), budget)
    except Unseen as unseen:
        about = f"{PDB.kind} {budget.full_name}"
        raise Unseen(f"whether {known.name} makes way for {about} ({unseen.what})") from None


def _shown(answer: OperatorAnswer | None, budget: Object) -> OperatorAnswer | None:
    """Return an answer whose remedy has the command that shows the object with the cause:
    the budget shows none.
    """
    if answer is None or not answer.remedy or answer.of_pods or "kubectl " in answer.remedy:
        return answer
    above = ((kinds.find(each.group, each.kind), each.name) for each in owners(budget))
    command = next(
        (kubectl("describe", kind, name, budget.namespace) for kind, name in above if kind), ""
    )
    return answer._replace(remedy=typed(answer.remedy, command))


# --- databases and queues -------------------------------------------------------------------------


_CNPG: Final = (CNPG_CLUSTER.group, NOOBAA_CLUSTER.group)


def _cloudnative_pg(eviction: PodEviction) -> OperatorAnswer:
    """CloudNativePG makes a ready replica on another node the primary when the node of the primary
    is cordoned.
    """
    owner, namespace = owner_of(eviction.budget, *_CNPG), eviction.budget.namespace
    if owner is None or not eviction.budget.name.endswith("-primary"):
        return not_ready(f"a replica of {owner}")
    if any(_is_standby(pod, owner.name, eviction) for pod in eviction.pods):
        return OperatorAnswer(
            Way.WAITS, f"CloudNativePG moves the primary of {owner} to a replica on another node"
        )
    kind = NOOBAA_CLUSTER if owner.group == NOOBAA_CLUSTER.group else CNPG_CLUSTER
    cluster = eviction.cluster.get(kind, namespace, owner.name)
    if cluster is None:
        raise Unseen(f"{owner} does not exist")
    if cluster.at("spec", "instances").integer in (None, 1):
        remedy = (
            "Set instances: 2 in the Cluster, or open a maintenance window with its "
            "nodeMaintenanceWindow."
        )
        if above := cluster.controller:
            top = f"{above['kind'].text} {above['name'].text}"
            remedy = (
                f"Ask for a second instance in {top}, which owns {owner} and reverts changes of it."
            )
        return OperatorAnswer(
            Way.NEVER, f"{owner} has one instance, which CloudNativePG cannot move", remedy
        )
    return not_ready(f"every replica of {owner} on other schedulable nodes")


def _is_standby(pod: Object, cluster: str, eviction: PodEviction) -> bool:
    ours = pod.labels.get("cnpg.io/cluster") == cluster and not pod.deleted
    return (
        ours
        and pod.is_true("Ready")
        and node_of(pod) != eviction.node
        and is_schedulable(node_of(pod), eviction.cluster)
    )


def _strimzi(eviction: PodEviction) -> OperatorAnswer:
    """Strimzi's Drain Cleaner refuses the eviction and lets the operator roll the pod to another
    node.
    """
    owner = owner_of(eviction.budget, "strimzi.io")
    if drain_cleaner.is_installed(eviction.cluster):
        if silent := drain_cleaner.silence(eviction.cluster):
            reason = (
                f"{eviction.never or 'it allows no disruption now'}, and {silent}, so nothing "
                f"moves the pods of {owner}"
            )
            return OperatorAnswer(Way.NOW, reason, "Repair its pods, then drain again.")
        return OperatorAnswer(
            Way.WAITS, f"the Strimzi operator moves the pods of {owner} at its next reconciliation"
        )
    if eviction.never:
        remedy = (
            f"Install Strimzi's Drain Cleaner, or set maxUnavailable: 1 in the template of {owner}."
        )
        return OperatorAnswer(
            Way.NEVER, f"{eviction.never}, and Strimzi has no Drain Cleaner here", remedy
        )
    return not_ready(f"a pod of {owner}")


def _elasticsearch(eviction: PodEviction) -> OperatorAnswer:
    """ECK allows one pod of a green cluster with several nodes of each role."""
    owner = owner_of(eviction.budget, "elasticsearch.k8s.elastic.co")
    found = eviction.cluster.get(
        ELASTICSEARCH, eviction.budget.namespace, owner.name if owner else ""
    )
    if found is None:
        raise Unseen(f"{owner} does not exist")
    health = found.at("status", "health").text or "unknown"
    if health != "green":
        reason = (
            f"the health of {owner} is {health}, and ECK allows no disruption until it is green"
        )
        why = "GET _cluster/allocation/explain says what keeps them"
        return OperatorAnswer(
            Way.NOW, reason, f"Wait until {owner} is green, or assign all shards of it ({why})."
        )
    role = _single_role(found)
    if role:
        reason = f"{owner} has a single {role} node, and ECK allows no disruption of the cluster"
        return OperatorAnswer(Way.NEVER, reason, f"Add a node with the role {role} to {owner}.")
    return not_ready(f"a pod of {owner}")


def _single_role(elasticsearch: Object) -> str:
    """Return the role that only one node of a cluster of several nodes has; empty: none."""
    node_sets = list(elasticsearch.at("spec", "nodeSets").items())
    if sum(each["count"].integer or 0 for each in node_sets) < _SEVERAL:
        return ""
    of_role = {
        role: sum(each["count"].integer or 0 for each in node_sets if _has(each, role))
        for role in _ROLES
    }
    return next((role for role, number in of_role.items() if number == 1), "")


_SEVERAL: Final = 2
_ROLES: Final = ("master", "data", "ingest")


def _has(node_set: Field, role: str) -> bool:
    """Return whether the nodes of a node set have a role: all roles,
    unless ``node.roles`` lists them.
    """
    config = node_set["config"]
    roles = config["node.roles"] if config["node.roles"].present else config.at("node", "roles")
    return not roles.is_list or any(
        each.text == role or (each.text or "").startswith(f"{role}_") for each in roles.items()
    )


# --- OpenShift and KubeVirt -----------------------------------------------------------------------


def _is_image_registry(budget: Object) -> bool:
    return (budget.namespace, budget.name) == ("openshift-image-registry", "image-registry")


def _image_registry(eviction: PodEviction) -> OperatorAnswer:
    if eviction.never:
        remedy = "Set replicas: 2 in the Config of the image registry."
        return OperatorAnswer(
            Way.NEVER, f"{eviction.never}, and the registry operator keeps it", remedy
        )
    return not_ready("a pod of the image registry")


_VIRT_COMPONENTS: Final = frozenset(
    ("virt-api", "virt-controller", "virt-operator", "virt-exportproxy")
)


def _is_of_virt_operator(budget: Object) -> bool:
    managed = budget.labels.get("app.kubernetes.io/managed-by") in (
        "virt-operator",
        "kubevirt-operator",
    )
    return managed or (
        budget.name.endswith("-pdb")
        and selected_labels(budget).get("kubevirt.io") in _VIRT_COMPONENTS
    )


def _virt_operator(eviction: PodEviction) -> OperatorAnswer:
    """The budget demands all replicas but one,
    and virt-operator writes none for a single replica.
    """
    component = selected_labels(eviction.budget).get("kubevirt.io") or "KubeVirt"
    return not_ready(f"a replica of {component}")


# --- operators that are not known -----------------------------------------------------------------


def _custom_owner(budget: Object) -> Owner | None:
    """Return the owner of a budget whose kind comes with a CustomResourceDefinition."""
    return next(
        (
            owner
            for owner in owners(budget)
            if "." in owner.group and owner.group not in BUILT_IN_GROUPS
        ),
        None,
    )


def _custom(eviction: PodEviction) -> OperatorAnswer | None:
    """Refused for good where it has not made way for a node whose drain began long ago and has
    removed all else, with all pods healthy, so that it waits for none. The answer is the same
    for all its pods.
    """
    budget, owner = eviction.budget, _custom_owner(eviction.budget)
    if not eviction.never or owner is None:
        return None
    kind = kinds.find(owner.group, owner.kind) or kinds.guess(f"{owner.group}/", owner.kind)
    above = find(eviction.cluster, kind, budget.namespace, owner.name)
    if above is not None and (set_by := pod_counts.annotated(eviction, above, kind)) is not None:
        return set_by
    if above is not None and (stretched := pod_counts.stretched(eviction, above, kind)):
        return stretched
    if pod_counts.is_hosted(budget, owner.group, owner.kind):
        return pod_counts.hosted(eviction, above, owner.name, kind)
    waited = _waited(eviction)
    if waited is None:
        raise Unseen(f"{owner} writes it, and whether it makes way is not known")
    node, age = waited
    number = pod_budgets.enough(budget)
    more = f"at least {number} pods, or for " if number else ""
    return OperatorAnswer(
        Way.NEVER,
        f"{eviction.never}, so no pod can ever be evicted: all are healthy, and the operator that "
        f"writes it has not made way for {node}, whose drain began {clock.duration(age)} ago",
        typed(
            f"Ask for {more}a budget that lets one go in {owner}{_FIELDS.get(owner.group, '')}, "
            "which writes it",
            kubectl("edit", kind, owner.name, budget.namespace),
        ),
    )


def _waited(eviction: PodEviction) -> tuple[str, timedelta] | None:
    """Return the node with a pod of the budget that has been drained longest, and for how long,
    while the budget allowed none with all its pods healthy; None: not for long.
    """
    budget, cluster, status = eviction.budget, eviction.cluster, eviction.budget["status"]
    healthy, expected = status["currentHealthy"].integer or 0, status["expectedPods"].integer or 0
    refuses = clock.since(pod_budgets.refuses_since(budget), cluster)
    if healthy < expected or not expected or refuses is None or refuses < _PATIENCE:
        return None
    began, node = drained_around(budget, cluster) or (None, "")
    age = clock.elapsed(began, cluster)
    return (node, age) if age is not None and age >= _PATIENCE else None


_PATIENCE: Final = timedelta(minutes=30)
"""What moves a role or a budget at a cordon has done so by then."""
_FIELDS: Final = {
    "operator.knative.dev": " (its spec.high-availability or spec.podDisruptionBudgets)"
}
"""Where the object of an operator sets the number of pods and the budget, by API group
(knative/operator:pkg/apis/operator/base/common.go#CommonSpec).
"""


_OPERATORS: Final = (
    Operator(
        "Longhorn",
        longhorn_budgets.is_instance_manager,
        longhorn_budgets.instance_manager,
        overrules=True,
    ),
    Operator("Longhorn", longhorn_budgets.is_csi, longhorn_budgets.csi),
    Operator("Rook", rook_budgets.wrote, rook_budgets.judge, overrules=True),
    Operator("CloudNativePG", lambda budget: owner_of(budget, *_CNPG) is not None, _cloudnative_pg),
    Operator("Zalando's Postgres operator", postgres_budgets.wrote, postgres_budgets.judge),
    Operator("Strimzi", lambda budget: owner_of(budget, "strimzi.io") is not None, _strimzi),
    Operator(
        "ECK",
        lambda budget: owner_of(budget, "elasticsearch.k8s.elastic.co") is not None,
        _elasticsearch,
    ),
    Operator("OpenShift", guard_budgets.is_guard, guard_budgets.guard),
    Operator("OpenShift", _is_image_registry, _image_registry),
    Operator("KubeVirt", _is_of_virt_operator, _virt_operator),
    Operator("its operator", lambda budget: _custom_owner(budget) is not None, _custom),
)
"""The first one that wrote a budget judges it."""
