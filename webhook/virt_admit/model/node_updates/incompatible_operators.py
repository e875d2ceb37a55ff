"""Installed operators that support no later minor release of OpenShift,
so that its update is not accepted.

The Operator Lifecycle Manager names them in its condition Upgradeable. Its Subscription decides
from which channel an operator is updated, and whether an administrator approves each InstallPlan.
Source: openshift/operator-framework-olm:
staging/operator-lifecycle-manager/pkg/controller/operators/openshift/helpers.go#incompatibleOperators
#skew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.model.commands import about, argument, kubectl, merge_patch, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import INSTALL_PLAN, SUBSCRIPTION
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names

READS: Final[Reads] = {
    SUBSCRIPTION: (
        "spec.channel",
        "spec.installPlanApproval",
        "spec.name",
        "status.installedCSV",
        "status.currentCSV",
        "status.state",
    ),
    INSTALL_PLAN: ("spec.approved", "spec.clusterServiceVersionNames", "status.phase"),
}
_CSV: Final = r"(?<![a-z0-9-])([a-z0-9-]{1,63})/([A-Za-z0-9.-]{0,252}[A-Za-z0-9])"
_NAMED: Final = tuple(
    re.compile(words)
    for words in (
        rf"maximum supported OCP version for {_CSV} is (\d+\.\d+)",
        rf"{_CSV} is incompatible with OpenShift minor versions greater than (\d+\.\d+)",
    )
)
"""How a newer and an older release of OpenShift name an operator."""
_MINOR: Final = re.compile(r"^(.*-)([0-9]{1,4})\.([0-9]{1,4})$")


def remedy(words: str, cluster: Cluster, *, ordered: bool = True) -> str:
    """Return how to update the operators that a refusal names; empty: none.

    ``ordered``: one waits.
    """
    found = list(dict.fromkeys(each for form in _NAMED for each in form.findall(words)))
    if not found:
        return ""
    others = names([f"{installed} of {namespace}" for namespace, installed, _ in found[1:]], 200)
    also = f" (and likewise for {others})" if others else ""
    (namespace, installed, most), *_ = found
    way, command, channels = _way(namespace, installed, cluster)
    until = f"{installed} is replaced by one that supports more than {most}"
    begin = "The ordered update starts by itself once" if ordered else "It is refused until"
    then = f"{begin} {until}"
    return typed(f"{way}{also}. {then}", command, channels)


def _way(namespace: str, installed: str, cluster: Cluster) -> tuple[str, str, str]:
    """Return what updates an operator, the command, and which channels there are."""
    own = next(
        (each for each in cluster.known(SUBSCRIPTION, namespace) if _has(each, installed)), None
    )
    if own is None:
        what = (
            f"Set a newer channel in the Subscription of {installed} in {namespace}, and approve "
            "its InstallPlan if needed"
        )
        return what, kubectl("get", SUBSCRIPTION, "", namespace), ""
    waiting = next(_waiting(namespace, installed, cluster), None)
    if waiting is not None:
        patch = merge_patch(INSTALL_PLAN, waiting.name, namespace, {"spec": {"approved": True}})
        return f"Approve InstallPlan {waiting.full_name}, which updates {installed}", patch, ""
    channel = own.at("spec", "channel").text or ""
    manual = own.at("spec", "installPlanApproval").text == "Manual"
    then = ", and approve its InstallPlan, as installPlanApproval is Manual" if manual else ""
    title = f"{SUBSCRIPTION.kind} {own.full_name}"
    latest = own.at("status", "state").text == _LATEST
    newest = f", whose latest release is {installed}," if latest else ","
    how = (
        f"Set the channel of {title}, now {channel or 'the default'}{newest} to a newer "
        f"one{_next(channel)}{_alike(own, cluster)}{then}"
    )
    return how, about("edit", own, SUBSCRIPTION), _channels(own)


_LATEST: Final = "AtLatestKnown"
"""The state of a Subscription whose channel has nothing newer: waiting does not update it."""


def _alike(own: Object, cluster: Cluster) -> str:
    """Return which other Subscriptions have the same channel, as a product of several operators
    has; empty: none, or the name of the channel has no release.
    """
    channel = own.at("spec", "channel").text or ""
    if not _MINOR.match(channel):
        return ""
    same = (
        each.name
        for each in cluster.known(SUBSCRIPTION, own.namespace)
        if each.name != own.name and each.at("spec", "channel").text == channel
    )
    found = names(sorted(same), 120)
    return f", and then see to those with the same channel: {found}" if found else ""


def _channels(own: Object) -> str:
    """Return how to see which channels a package has, which only its catalog knows."""
    package = own.at("spec", "name").text
    if not package:
        return ""
    get = ("kubectl", "get", "packagemanifests.packages.operators.coreos.com", argument(package))
    which = ("-o", "jsonpath={.status.channels[*].name}")
    return f"its channels: {shell(*get, '-n', argument(own.namespace or ''), *which)}"


def _has(subscription: Object, installed: str) -> bool:
    status = subscription["status"]
    return installed in (status["installedCSV"].text, status["currentCSV"].text)


def _next(channel: str) -> str:
    """Return the usual name of the next channel, as `` such as stable-4.19``; empty:
    the name has no minor release.
    """
    parts = _MINOR.match(channel)
    return f" such as {parts[1]}{parts[2]}.{int(parts[3]) + 1}" if parts else ""


def _waiting(namespace: str, installed: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the InstallPlans that update an operator and wait for their approval."""
    package = installed.partition(".")[0]
    for plan in cluster.known(INSTALL_PLAN, namespace):
        listed = (each.text or "" for each in plan.at("spec", "clusterServiceVersionNames").items())
        newer = any(name.partition(".")[0] == package and name != installed for name in listed)
        if newer and plan.at("status", "phase").text == "RequiresApproval":
            yield plan
