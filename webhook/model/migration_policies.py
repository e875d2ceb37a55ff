"""Which VMs a migration policy applies to (cluster-configuration.md 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from webhook.model.objects import Object


class Selectors(NamedTuple):
    """The labels that a policy asks for; an absent selector asks for none."""

    namespace: Mapping[str, str]
    vmi: Mapping[str, str]


def labels(policy: Object) -> Selectors:
    """The labels of both selectors, which stand in them directly, without ``matchLabels``."""
    selectors = policy["spec"]["selectors"]
    return Selectors(selectors["namespaceSelector"].texts, selectors["virtualMachineInstanceSelector"].texts)
