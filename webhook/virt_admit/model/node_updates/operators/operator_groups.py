"""A namespace with several OperatorGroups: the Operator Lifecycle Manager does nothing in it.

Each ClusterServiceVersion of it fails, and an InstallPlan stays Installing. The annotation
``olm.operatorGroup`` does not say which group is the right one: each group writes it in turn. So
the group is kept that alone existed while the ClusterServiceVersion had succeeded. Sources, in
operator-framework/operator-lifecycle-manager: pkg/controller/operators/olm/operator.go
#operatorGroupForCSV, pkg/controller/operators/olm/operatorgroup.go #syncOperatorGroups
#annotateCSVs, pkg/lib/scoped/querier.go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import count, names
from virt_admit.model.problems import Problem

TOO_MANY: Final = "TooManyOperatorGroups"
"""The reason of a ClusterServiceVersion that failed for this."""
GROUP: Final = kinds.guess("operators.coreos.com/v1", "OperatorGroup")
"""A snapshot may hold it. It is not read from a live cluster."""
_COUNTED: Final = re.compile(r"more than one operator group\(?s?\)? are managing this namespace")
"""How an InstallPlan says it."""
_FEW: Final = 10
"""More groups than that fit into no command."""


def is_blamed(words: str) -> bool:
    """Return whether an InstallPlan says that its namespace has several groups."""
    return _COUNTED.search(words) is not None


def surplus(namespace: str, csv: Object | None, cluster: Cluster) -> Problem | None:
    """Return which groups a namespace has, and which of them is to go; None: it has one by now.

    Args:
        csv: the ClusterServiceVersion that is installed; None: it cannot be read.
    """
    found = sorted(
        (each for each in cluster.known(GROUP, namespace) if not each.deleted),
        key=lambda each: (each.created, each.name),
    )
    if len(found) == 1:
        return None
    if not found:
        shown = shell("kubectl", "get", "operatorgroups", "-n", namespace)
        return Problem(
            f"namespace {namespace} has several OperatorGroups",
            typed(
                "Keep the OperatorGroup with which the operator worked, usually the oldest one, "
                "and delete the others, also where GitOps writes them. OLM then goes on by itself",
                shown,
            ),
        )
    words = (
        f"namespace {namespace} has {count(len(found), 'OperatorGroup')}, of which OLM takes none: "
        f"{names([_described(each, cluster) for each in found], 300)}"
    )
    return Problem(words, _remedy(found, namespace, csv))


def _described(group: Object, cluster: Cluster) -> str:
    age = clock.age(group, cluster)
    made = f"made {clock.duration(age)} ago" if age is not None else ""
    writer = writers.of(group)
    said = " ".join(filter(None, (made, f"by {writer.source}" if writer is not None else "")))
    return f"{group.name} ({said})" if said else group.name


def _remedy(found: Sequence[Object], namespace: str, csv: Object | None) -> str:
    kept = _kept(found, csv) if len(found) <= _FEW else None
    if kept is None:
        return typed(
            "See which one has the target namespaces that the operator needs, keep it and delete "
            "the others, also where GitOps writes them. OLM then goes on by itself",
            shell("kubectl", "get", "operatorgroups", "-n", namespace, "-o", "yaml"),
        )
    others = [each for each in found if each is not kept]
    sources = dict.fromkeys(each.source for each in map(writers.of, others) if each is not None)
    which = names([each.name for each in others])
    command = shell(
        *("kubectl", "delete", "operatorgroup"),
        *(argument(each.name) for each in others),
        *("-n", namespace),
    )
    keep, after = f"Keep {kept.name}, with which it worked, and", "OLM then goes on by itself"
    if sources:  # which would write it again
        return f"{keep} take {which} out of {names(sources)}; then delete it ({command}). {after}"
    return typed(f"{keep} delete {which}. {after}", command)


def _kept(found: Sequence[Object], csv: Object | None) -> Object | None:
    """Return the group that alone existed when the ClusterServiceVersion had succeeded; None: that
    is not known."""
    worked = _succeeded(csv) if csv is not None else None
    made = [clock.instant(each.created) for each in found]
    if worked is None or any(each is None for each in made):
        return None
    older = [group for group, each in zip(found, made, strict=True) if each and each <= worked]
    return older[0] if len(older) == 1 else None


def _succeeded(csv: Object) -> datetime | None:
    """Return when a ClusterServiceVersion succeeded last."""
    times = [
        clock.instant(each["lastTransitionTime"].text)
        for each in csv.at("status", "conditions").items()
        if each["phase"].text == "Succeeded"
    ]
    return max((each for each in times if each is not None), default=None)
