"""The settings of health checks in CEL, for all three kinds."""

from __future__ import annotations

from typing import Final

from virt_admit.model import cel
from virt_admit.model.remediation.health_checks import TERMINATING

CONDITIONS: Final = cel.items(
    "(self.apiVersion == 'cluster.x-k8s.io/v1beta2' ? self.?spec.?checks.?unhealthyNodeConditions"
    " : self.?spec.?unhealthyConditions)"
)
"""The list of node conditions, in CEL."""
PATH: Final = (
    "(self.apiVersion == 'cluster.x-k8s.io/v1beta2'"
    " ? 'spec.checks.unhealthyNodeConditions' : 'spec.unhealthyConditions')"
)
HANDLER: Final = (
    f"self.kind == 'MachineHealthCheck' && {CONDITIONS}.size() > 0"
    f" && {CONDITIONS}.all(item, {cel.entries('optional.of(item)')}.?type.orValue(null) == '{TERMINATING}')"
)
"""Whether the check is a termination handler, in CEL."""
