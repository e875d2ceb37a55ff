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

from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Finding

_VARIABLE: Final = re.compile(r"\$\{\{?[A-Za-z_]\w*[^{}]{0,200}\}\}?")


def determined(findings: Iterable[Finding | Unseen], obj: Object) -> Iterator[Finding | Unseen]:
    """Yield the findings on an object of a file, and for one about the value of a variable that
    this value is not seen.
    """
    for finding in findings:
        variable = "" if isinstance(finding, Unseen) else _judged(finding, obj)
        yield Unseen(f"the value of {variable}") if variable else finding


def _judged(finding: Finding, obj: Object) -> str:
    """Return the variable whose value a finding complains of; empty: none.

    What is said of a field whatever its value is (that it is deprecated) does not name the value.
    """
    found = _VARIABLE.search(obj.root.at(*finding.path).text or "")
    return found[0] if found is not None and found[0] in finding.message else ""
