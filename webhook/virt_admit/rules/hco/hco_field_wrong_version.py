"""A HyperConverged uses a field that its API version does not have.

**Why.** Between v1beta1 and v1 nearly every field moved. The API server drops what a version does not know:
``kubectl`` refuses such a file by default, other clients lose the setting without a word and the default stays in
force. Only ``check`` can meet this; what reaches the webhook has been pruned.

**Fix.** Write the field where this version keeps it, or change ``apiVersion``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.objects import Object, Path
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

V1_ONLY = frozenset(
    ("virtualization", "storage", "networking", "workloadSources", "security", "deployment", "observability")
)
V1_FIELDS = V1_ONLY | {"featureGates"}


def check(hco: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    if hco.version not in ("v1", "v1beta1"):
        return
    for key in hco["spec"].map:
        field = hco["spec"][key]
        if not field.present or (key in V1_FIELDS if hco.version == "v1" else key not in V1_ONLY):
            continue
        places = [str(right) for wrong, right in _moved(hco) if hco.root.at(*wrong).present and wrong[1] == key]
        other = "v1beta1" if hco.version == "v1" else "v1"
        remedy = f"write {', '.join(places)}" if places else f"see where {hco.version} keeps it"
        known = "" if hco.version == "v1" and not places else f", or use apiVersion {HCO.group}/{other}"
        yield Finding(
            field.path,
            f"{hco.version} has no such field and the server drops it; {remedy}{known}",
            cause=Cause.FORBIDDEN,
        )


def _moved(hco: Object) -> Iterator[tuple[Path, Path]]:
    """Where the other version keeps a setting, and where this one does."""
    other = Object({**hco.data, "apiVersion": f"{HCO.group}/{'v1beta1' if hco.version == 'v1' else 'v1'}"})
    for what in Setting:
        wrong, right = setting(other, what).path, setting(hco, what).path
        if len(wrong) > 1 and len(right) > 1:
            yield wrong, right


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO,),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/hyperconverged-cluster-operator:deploy/crds/hco00.crd.yaml",
        "kubevirt/hyperconverged-cluster-operator:docs/cluster-configuration.md",
    ),
)
