"""Updates that wait for an approval although the Subscription of the operator is Automatic.

One Subscription with ``installPlanApproval: Manual`` makes every later InstallPlan of its namespace
Manual, and an InstallPlan stays so. It may install several operators at once. An operator whose own
Subscription is Manual waits as its administrator wants, which is nothing to report. Sources, in
operator-framework/operator-lifecycle-manager: pkg/controller/operators/catalog/operator.go
#syncResolvingNamespace (installPlanApproval) #createInstallPlan; issues #3152, #1859.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import INSTALL_PLAN, SUBSCRIPTION
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem

READS: Final[Reads] = {
    SUBSCRIPTION: ("spec.installPlanApproval", "status.currentCSV", "status.installedCSV"),
    INSTALL_PLAN: (
        "spec.approval",
        "spec.approved",
        "spec.clusterServiceVersionNames",
        "status.phase",
    ),
}
_MANUAL: Final = "Manual"


def awaited(subscription: Object, plan: Object, cluster: Cluster) -> Problem | None:
    """Return that the InstallPlan of a Subscription waits for what it does not ask for; None: it
    does not."""
    spec, wanted = plan["spec"], subscription.at("status", "currentCSV").text or ""
    installs = [each.text or "" for each in spec["clusterServiceVersionNames"].items()]
    if (
        subscription.at("spec", "installPlanApproval").text != "Automatic"
        or plan.at("status", "phase").text != "RequiresApproval"
        or spec["approval"].text != _MANUAL
        or spec["approved"].boolean is not False
        or wanted == subscription.at("status", "installedCSV").text
        or wanted not in installs
    ):
        return None
    manual = [
        each
        for each in sorted(
            cluster.known(SUBSCRIPTION, subscription.namespace), key=lambda each: each.name
        )
        if each.at("spec", "installPlanApproval").text == _MANUAL and not each.deleted
    ]
    others = [each.name for each in manual]
    held = [each for each in manual if each.at("status", "currentCSV").text in installs]
    own = "its Subscription is Automatic"
    why = (
        f"{own}, but {_subscriptions(others)} of the namespace {_are(others)} Manual, which makes "
        "every InstallPlan there Manual"
        if others
        else f"{own}, but a Subscription of the namespace was Manual when it was made"
    )
    remedy = _agree(plan, held) if held else _remedy(plan, installs, wanted, others)
    return Problem(why, remedy)


def _agree(plan: Object, held: Sequence[Object]) -> str:
    """Return what to do where the approval also updates what its administrator holds."""
    subscriptions = [each.name for each in held]
    versions = names([each.at("status", "currentCSV").text or "" for each in held])
    return typed(
        f"InstallPlan {plan.name} also installs {versions} of {_subscriptions(subscriptions)}, "
        f"which {_are(subscriptions)} Manual on purpose: agree with its administrator before it is "
        "approved, as it installs all or nothing",
        about("describe", plan, INSTALL_PLAN),
    )


def _remedy(plan: Object, installs: Sequence[str], wanted: str, others: Sequence[str]) -> str:
    more = [each for each in installs if each != wanted]
    also = f" (it also installs {names(more)})" if more else ""
    later = (
        f"; later ones wait as well until {_subscriptions(others)} {_are(others)} Automatic, or in "
        "another namespace"
        if others
        else ""
    )
    command = merge_patch(INSTALL_PLAN, plan.name, plan.namespace, {"spec": {"approved": True}})
    return typed(f"Approve InstallPlan {plan.name}{also}{later}", command)


def _subscriptions(found: Sequence[str]) -> str:
    return f"{'Subscription' if len(found) == 1 else 'Subscriptions'} {names(found)}"


def _are(found: Sequence[str]) -> str:
    return "is" if len(found) == 1 else "are"
