"""Variables of manifests, such as ``${CLUSTER_NAME}``: what fills them in runs after ``check``.

Flux' postBuild, clusterctl, ``envsubst`` and the Template of OpenShift write them so (also with a
default, ``${NAME:=1h}``, or, for a number, ``${{REPLICAS}}``). A finding about such a
value says nothing of the object that the API server will get. An object of a cluster has no
variables: there the same text is a wrong value.
Sources: fluxcd/kustomize-controller:docs/spec/v1/kustomizations.md; kubernetes-sigs/cluster-api:
docs/book/src/clusterctl/provider-contract.md; openshift/library-go:pkg/template/
templateprocessing/template.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.rule import Finding

_CUT: Final = r"…|\.\.\."
_VARIABLE: Final = re.compile(
    rf"\$\{{\{{?(?:[A-Za-z_]\w*[^{{}}…]{{0,200}}?(?:\}}\}}?|{_CUT})|{_CUT})"
)
"""A variable, perhaps cut by the message that names it."""


def determined(
    findings: Iterable[Finding | Unseen], obj: Object, cluster: Cluster
) -> Iterator[Finding | Unseen]:
    """Yield the findings on an object of a file, and for one that names a variable that its value
    is not seen.

    What is said of a field whatever its value is (that it is deprecated) names none. The field of a
    finding does not decide: a selector holds the value that is wrong, and a reference the name of
    what does not exist. A claim that was found has the name that its VM gives, whatever that is.
    """
    for finding in findings:
        variable = "" if isinstance(finding, Unseen) else _named(finding.message, obj, cluster)
        yield Unseen(f"the value of {variable}") if variable else finding


def _named(message: str, obj: Object, cluster: Cluster) -> str:
    """Return the first variable in a message, besides those in names of what was found; empty:
    none.
    """
    if _VARIABLE.search(message) is None:  # nearly always
        return ""
    for name in _found_names(obj, cluster):
        message = message.replace(name, "")
    found = _VARIABLE.search(message)
    return found[0] if found is not None else ""


def _found_names(obj: Object, cluster: Cluster) -> list[str]:
    """Return the names with a variable that the object, its data volumes and the claims beside it
    have, the longest first.
    """
    volumes = vms.vm_spec(obj)["dataVolumeTemplates"].items()
    claims = (each.name for each in cluster.known(PVC, obj.namespace))
    names = {obj.name, *claims, *(each.at("metadata", "name").text or "" for each in volumes)}
    return sorted((name for name in names if _VARIABLE.search(name)), key=len, reverse=True)
