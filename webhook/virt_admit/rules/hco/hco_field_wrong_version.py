"""HyperConverged uses a field that its API version does not define.

**Why.** Nearly every field moved between v1beta1 and v1. The API server drops fields that a version
does not define. ``kubectl`` rejects such a file by default. Other clients lose the setting silently
and the default applies. Only ``virt-admit check`` can find this, because the API server drops the
field before it calls the webhook.

**Fix.** Write the field where this version defines it, or change ``apiVersion``.
"""

from collections.abc import Iterator

from virt_admit.model.kubevirt.settings import hco_versions
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import HCO, Action, Cause, Context, Finding, Findings, Object, Path, rule


@rule(
    kinds=(HCO,),
    action=Action.DENY,
    at_admission=False,
    sources=(
        "kubevirt/hyperconverged-cluster-operator:deploy/crds/hco00.crd.yaml",
        "kubevirt/hyperconverged-cluster-operator:docs/cluster-configuration.md",
    ),
)
def check(hco: Object, _context: Context) -> Findings:
    other = "v1beta1" if hco.version == "v1" else "v1"
    for field in hco_versions.foreign_fields(hco):
        key = field.path[-1]
        paths = [
            str(right)
            for wrong, right in _moved(hco)
            if hco.root.at(*wrong).present and wrong[1] == key
        ]
        remedy = f"Use {', '.join(paths)}" if paths else f"Check the fields of {hco.version}"
        alternative = (
            "" if hco.version == "v1" and not paths else f", or use apiVersion {HCO.group}/{other}"
        )
        yield Finding(
            field.path,
            f"{hco.version} does not define this field, so the API server drops it. "
            f"{remedy}{alternative}.",
            cause=Cause.FORBIDDEN,
        )


def _moved(hco: Object) -> Iterator[tuple[Path, Path]]:
    """Yield the path of each setting in the other version and in this one."""
    other = Object(
        {**hco.data, "apiVersion": f"{HCO.group}/{'v1beta1' if hco.version == 'v1' else 'v1'}"}
    )
    for name in Setting:
        wrong, right = setting(other, name).path, setting(hco, name).path
        if len(wrong) > 1 and len(right) > 1:
            yield wrong, right
