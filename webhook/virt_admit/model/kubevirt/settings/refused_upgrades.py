"""Why an operator does not let the Operator Lifecycle Manager replace it:
the sentence that names the object.

An operator says so in its OperatorCondition, which has the name of its ClusterServiceVersion.
HyperConverged hands on what the objects say that it deploys. Sources:
operator-framework/operator-lifecycle-manager:pkg/controller/operators/olm/
operatorconditions.go#isOperatorUpgradeable;
kubevirt/hyperconverged-cluster-operator:controllers/operands/operand.go
#handleOperandUpgradeableCond,
:controllers/hyperconverged/hyperconverged_controller.go#setOperatorUpgradeableStatus;
kubevirt/cluster-network-addons-operator:pkg/controller/statusmanager/status_manager.go, pull
request #1334.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import capital, cut_middle
from virt_admit.model.problems import Problem

READS: Final[Reads] = {HCO: (), KUBEVIRT: (), CDI: ()}
CONDITION: Final = kinds.guess("operators.coreos.com/v2", "OperatorCondition")
"""In a live cluster discovery finds it."""
_DEPLOYED: Final[Mapping[str, Kind]] = {
    "CDI": CDI,
    "KubeVirt": KUBEVIRT,
    "NetworkAddonsConfig": kinds.guess(
        "networkaddonsoperator.network.kubevirt.io/v1", "NetworkAddonsConfig"
    )._replace(namespaced=False),
    "SSP": kinds.guess("ssp.kubevirt.io/v1beta3", "SSP"),
    "AAQ": kinds.guess("aaq.kubevirt.io/v1alpha1", "AAQ")._replace(namespaced=False),
}
"""What HyperConverged deploys and reports on, by the word that it uses."""
_UPGRADEABLE: Final = "Upgradeable"
_FRAMES: Final = re.compile(
    r"^(?:operator is not upgradeable: )?(?:The operator is not upgradeable: )?", re.IGNORECASE
)
_OF_PART: Final = re.compile(
    r"(\w{2,40}) is (not upgradeable|degraded|progressing|not available): (.+)\Z", re.DOTALL
)
_TYPES: Final = {
    "not upgradeable": _UPGRADEABLE,
    "degraded": "Degraded",
    "progressing": "Progressing",
    "not available": "Available",
}
_OF_PARTS: Final = re.compile(r"due to (degraded|progressing) components")
_PLEASE: Final = re.compile(r"\bplease,? ([^.;]{4,200})", re.IGNORECASE)
_LONGEST: Final = 300


def of_operator(namespace: str, installed: str, said: str, cluster: Cluster) -> Problem | None:
    """Return why an operator does not let itself be replaced; None: nothing says that it does not.

    Args:
        namespace: that of the operator.
        installed: the name of its ClusterServiceVersion.
        said: what the ClusterServiceVersion says that is to replace it; empty: nothing.
        cluster: where the conditions are looked up.
    """
    condition = next(
        (each for each in cluster.known(CONDITION, namespace) if each.name == installed), None
    )
    if condition is not None and (override := _override(condition)) is not None:
        return _overridden(condition, override)
    hco = next(iter(cluster.known(HCO, namespace)), None) if "hyperconverged" in installed else None
    for obj, kind in ((hco, HCO), (condition, CONDITION)):
        words = _refusal(obj) if obj is not None else ""
        if obj is not None and words:
            return _followed(obj, kind, words, cluster)
    words = _FRAMES.sub("", said)
    if not words or condition is None:
        return Problem(words, _ends(words, "the operator", "")) if words else None
    return _followed(condition, CONDITION, words, cluster)


def _refusal(obj: Object) -> str:
    found = obj.condition(_UPGRADEABLE)
    return _said(found) if found["status"].text == "False" else ""


def _said(condition: Field) -> str:
    return condition["message"].words or condition["reason"].words


def _override(condition: Object) -> Field | None:
    found = condition.at("spec", "overrides").items()
    return next((each for each in found if each["type"].text == _UPGRADEABLE), None)


def _overridden(condition: Object, override: Field) -> Problem | None:
    """Return that an administrator holds an operator; None: the override lets it go."""
    if override["status"].text != "False":
        return None
    why = f": {cut_middle(_said(override), _LONGEST)}" if _said(override) else ""
    words = f"OperatorCondition {condition.full_name} overrides {_UPGRADEABLE} to False{why}"
    return Problem(
        words,
        typed("Remove that override when its cause is over", about("edit", condition, CONDITION)),
    )


def _followed(obj: Object, kind: Kind, words: str, cluster: Cluster) -> Problem:
    """Return the refusal of an object, or of the part that it names."""
    if several := _OF_PARTS.search(words):
        words = _said(obj.condition(_TYPES[several[1]])) or words
    part = _OF_PART.match(words)
    deployed = _DEPLOYED.get(part[1]) if part else None
    if part is None or deployed is None:
        title = f"{obj.kind} {obj.full_name}"
        return Problem(
            f"{title} says: {cut_middle(words, _LONGEST)}",
            _ends(words, title, about("describe", obj, kind)),
        )
    found = _of_part(cluster.known(deployed), _TYPES[part[2]])
    title = f"{part[1]} {found.full_name}" if found is not None else part[1]
    said = (_said(found.condition(_TYPES[part[2]])) if found is not None else "") or part[3]
    command = (
        about("describe", found, deployed) if found is not None else about("describe", obj, kind)
    )
    return Problem(
        f"{title} is {part[2]}: {cut_middle(said, _LONGEST)}", _ends(said, title, command)
    )


def _of_part(known: Iterable[Object], condition: str) -> Object | None:
    """Return the object that says so, else the only one."""
    every = list(known)
    bad = "True" if condition in ("Degraded", "Progressing") else "False"
    saying = [each for each in every if each.condition(condition)["status"].text == bad]
    return next(iter(saying or (every if len(every) == 1 else ())), None)


def _ends(said: str, title: str, command: str) -> str:
    """Return what ends a refusal: what it asks for, else where to change it."""
    asked = _PLEASE.search(said)
    what = capital(" ".join(asked[1].split())) if asked else f"End that state of {title}"
    return typed(f"{what}, after which OLM goes on by itself", command)
