"""The migration network is not a valid NetworkAttachmentDefinition name.

**Why.** KubeVirt writes the value as network annotation ``<value>@migration0`` on the virt-handler
pods of every node. With an empty or malformed name these pods do not get their network.

**Fix.** Write ``name`` or ``namespace/name``, or remove the field.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubevirt.settings import cel_settings, migration_limits
from virt_admit.model.kubevirt.settings.configuration import Setting
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule, show

_NETWORK: Final = f"{cel_settings.cel_setting(Setting.MIGRATIONS)}.?network"


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"{cel.present(_NETWORK)} && !({cel.is_text(_NETWORK)} && "
                f"{_NETWORK}.orValue('').matches("
                f"{cel.text(f'^(?:{migration_limits.NETWORK.pattern})$')}) && "
                f"{_NETWORK}.orValue('').split('/').all(part, part.size() <= "
                f"{migration_limits.LONGEST_NAME}))"
            ),
            path=f"{cel_settings.cel_path(Setting.MIGRATIONS)} + '.network'",
            message=(
                "'this is not a valid network name; virt-handler pods would get no network. Write "
                "name or namespace/name ' + 'in lower case, or remove the field.'"
            ),
            value=f"{_NETWORK}.orValue(null)",
        ),
    ),
    sources=("kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/daemonsets.go",),
)
def check(obj: Object, _context: Context) -> Findings:
    network = migration_limits.block(obj)["network"]
    if network.present and migration_limits.network(obj) is None:
        yield Finding(
            network.path,
            f"{show(network.value)} is not a valid network name; virt-handler pods would get no "
            "network. Write name or namespace/name in lower case, or remove the field.",
        )
