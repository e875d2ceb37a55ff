"""Pods that request more memory than their limit, as KubeVirt divides the request of a VM by its
``memoryOvercommit``, which is below 100.

That ratio is for VMs without a request of their own. KubeVirt 1.6.2 applies it to all (#15736), and
1.6.3 does not (#15894, issue #15901). Sources:
kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go#WithMemoryOvercommit (1.6.2),
#WithMemoryOverhead (added to the request and to the limit alike).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.configuration import known_or_none
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = {KUBEVIRT: (), HCO: (), VMI: ("spec.domain.resources",)}

_SAID: Final = re.compile(
    r'(?:Pod \\?"[\w.-]{1,253}\\?" is invalid: \S{1,100} )?Invalid value: '
    r'\\?"(?P<request>\w{1,30})\\?": must be less than or equal to memory limit of '
    r"(?P<limit>\w{1,30})"
)
_REPAIRED: Final = Version(1, 6, 3)
_WHOLE: Final = 100


def of(vmi: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return that the ratio of KubeVirt is why the pod of a VMI requests more than its limit; None:
    it does not, or that is not known.

    ``said``: what the API server answered. Only figures that fit the ratio count.
    """
    found, kubevirt = _SAID.search(said), known_or_none(configuration.kubevirt, cluster)
    if found is None or kubevirt is None:
        return None
    ratio, own = _ratio(kubevirt), _own(vmi)
    if ratio is None or own is None:
        return None
    request, limit = (_amount(found[part]) for part in ("request", "limit"))
    asked, most = own
    if request is None or limit is None or request != asked * _WHOLE // ratio + (limit - most):
        return None
    release = versions.kubevirt_version(cluster)
    who = f"KubeVirt {release}" if release is not None else "KubeVirt"
    shown = vmi.at("spec", "domain", "resources", "requests", "memory").text
    reason = (
        f"{found[0]}. {who} divides the {shown} of memory that the VM itself requests by "
        f"memoryOvercommit {ratio}%"
    )
    others = [each for each in _exceeding(cluster) if each != vmi.full_name]
    alike = f". The next pods of {names(others, 80)} are refused alike" if others else ""
    update = ""
    if release is not None and release < _REPAIRED:
        update = f"; or update KubeVirt to {_REPAIRED} or later"
    remedy = typed(*_raise(update, kubevirt, cluster))
    why = f"{reason}{alike}"
    return Problem(why, remedy, ProblemCause.NOT_CREATED, brief=reason)


def _raise(update: str, kubevirt: Object, cluster: Cluster) -> tuple[str, str]:
    """Return what makes the ratio harmless, and its command: HyperConverged writes it."""
    hco = known_or_none(configuration.hyperconverged, cluster)
    if hco is not None:
        where = (
            f"higherWorkloadDensity.memoryOvercommitPercentage of HyperConverged {hco.full_name}"
        )
        command = kubectl("edit", HCO, hco.name, hco.namespace)
    else:
        where = f"memoryOvercommit of KubeVirt {kubevirt.full_name} (developerConfiguration)"
        command = kubectl("edit", KUBEVIRT, kubevirt.name, kubevirt.namespace)
    return f"set {where} to {_WHOLE}{update}; or take the memory limit out of these VMs", command


def _ratio(kubevirt: Object) -> int | None:
    """Return the ratio by which KubeVirt makes requests larger; None: it does not."""
    developer = kubevirt.at("spec", "configuration", "developerConfiguration")
    ratio = developer["memoryOvercommit"].integer
    return ratio if ratio is not None and 0 < ratio < _WHOLE else None


@cached
def _exceeding(cluster: Cluster) -> Sequence[str]:
    """Return the VMIs whose request exceeds their limit when it is divided."""
    kubevirt = known_or_none(configuration.kubevirt, cluster)
    ratio = _ratio(kubevirt) if kubevirt is not None else None
    if ratio is None:
        return ()
    running = ((each.full_name, _own(each)) for each in cluster.known(VMI) if not each.ended)
    return sorted(name for name, own in running if own and own[0] * _WHOLE // ratio > own[1])


def _own(vmi: Object) -> tuple[Fraction, Fraction] | None:
    """Return how much memory a VMI itself requests, and its limit; None: it has not both."""
    resources = vmi.at("spec", "domain", "resources")
    asked, most = (_amount(resources[kind]["memory"].text) for kind in ("requests", "limits"))
    return (asked, most) if asked is not None and most is not None else None


def _amount(text: str | None) -> Fraction | None:
    try:
        return parse_quantity(text) if text else None
    except ValueError:
        return None
