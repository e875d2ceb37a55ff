"""APIServices that do not answer. They never stop a drain, but commands that need them fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.drain.control import control_path
from virt_admit.model.kubernetes import clock, webhook_bundles
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import API_SERVICE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    clock.READS, {API_SERVICE: ("spec.caBundle", "spec.group", "status.conditions")}
)


@cached
def notes(cluster: Cluster) -> Sequence[str]:
    """Return which APIs do not answer, or are not trusted."""
    by_effect: dict[str, list[str]] = {}
    removed = removed_operators.kubevirt(cluster)
    for found in cluster.known(API_SERVICE):
        if removed is not None and removed.leaves(found):
            continue
        ended = _has_ended(found, cluster)
        if found.condition("Available")["status"].text == "False" or ended:
            of_kubevirt = found.name.endswith(control_path.SUBRESOURCES)
            refused = of_kubevirt and webhook_bundles.served_expired(found)
            effect = _REFUSED if refused else _NO_VIRTCTL if of_kubevirt else ""
            by_effect.setdefault(f"{ended}{effect}", []).append(found.name)
    return [
        f"APIService {found[0]} is not available{effect}."
        if len(found) == 1
        else f"APIServices {names(sorted(found))} are not available{effect}."
        for effect, found in sorted(by_effect.items())
    ]


def _has_ended(service: Object, cluster: Cluster) -> str:
    """Return that API servers do not trust an APIService of a product, as its CA has ended; empty:
    they do."""
    now = clock.now(cluster)
    ended = now is not None and any(
        each.has_ended(now) for each in webhook_bundles.bundles(service)
    )
    return " (CA bundle expired)" if ended else ""


_NO_VIRTCTL: Final = "; virtctl fails, so use kubectl meanwhile"
_REFUSED: Final = (
    "; virtctl fails, and so does kubectl for VMs: the webhooks of virt-api have the same "
    "certificate"
)
