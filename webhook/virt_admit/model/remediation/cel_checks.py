"""The settings of health checks in CEL, for all three kinds."""

from __future__ import annotations

from typing import Final

from virt_admit.model import cel
from virt_admit.model.remediation.health_checks import TERMINATING

V1BETA2: Final = "self.apiVersion == 'cluster.x-k8s.io/v1beta2'"
"""Whether the check has the layout of the newest version of Cluster API, in CEL."""
CONDITIONS: Final = cel.items(
    f"({V1BETA2} ? self.?spec.?checks.?unhealthyNodeConditions : self.?spec.?unhealthyConditions)"
)
"""The list of node conditions, in CEL."""
PATH: Final = f"({V1BETA2} ? 'spec.checks.unhealthyNodeConditions' : 'spec.unhealthyConditions')"
HANDLER: Final = (
    f"self.kind == 'MachineHealthCheck' && {CONDITIONS}.size() > 0"
    f" && {CONDITIONS}.all(item, {cel.entries('optional.of(item)')}.?type.orValue(null) == '{TERMINATING}')"
)
"""Whether the check is a termination handler, in CEL."""
MACHINE_CONDITIONS: Final = cel.items(
    f"({V1BETA2} ? self.?spec.?checks.?unhealthyMachineConditions"
    " : self.apiVersion.startsWith('cluster.x-k8s.io/') ? self.?spec.?unhealthyMachineConditions : self.?nothing)"
)
"""The list of conditions of the Machine itself (Cluster API), in CEL."""
MACHINE_PATH: Final = f"({V1BETA2} ? 'spec.checks.unhealthyMachineConditions' : 'spec.unhealthyMachineConditions')"
_SELECTOR: Final = "self.?spec.?selector"
EMPTY_SELECTOR: Final = (
    f"(!({cel.present(_SELECTOR)}) || ({cel.is_map(_SELECTOR)}"
    f" && (!({cel.present(f'{_SELECTOR}.?matchLabels')})"
    f" || ({cel.is_map(f'{_SELECTOR}.?matchLabels')} && {cel.entries(f'{_SELECTOR}.?matchLabels')}.size() == 0))"
    f" && (!({cel.present(f'{_SELECTOR}.?matchExpressions')})"
    f" || (type({_SELECTOR}.?matchExpressions.orValue(null)) == list"
    f" && {cel.items(f'{_SELECTOR}.?matchExpressions')}.size() == 0))))"
)
"""Whether the selector selects everything, in CEL."""
