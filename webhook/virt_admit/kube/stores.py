"""The stores that a cache needs for some rules."""

from __future__ import annotations

from typing import Final

from virt_admit.kube.cache import KindStore, Summary
from virt_admit.kube.field_filter import NO_READS, WHOLE, lookup_namespace, retained_fields
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.launcher import pod_summary
from virt_admit.rules import Rules


def stores(
    rules: Rules, also: Reads = NO_READS, beside: Reads = NO_READS, *, whole: bool = False
) -> list[KindStore]:
    """Return stores for everything that these rules judge or look up,
    and what is ``also`` looked up.

    Of kinds that are only looked up the stores keep the fields that are read, or every field if
    ``whole``. ``beside`` names further fields of these kinds. It adds no kind.
    """
    looked_up = retained_fields(rules, also)
    retained = retained_fields(
        rules, union(also, {kind: beside[kind] for kind in looked_up if kind in beside})
    )
    complete = {kind for kind in (*rules.kinds, *retained) if whole or kind in rules.by_kind}
    return [
        KindStore(
            kind,
            lookup_namespace(kind, rules),
            WHOLE if kind in complete else retained[kind],
            packed=kind in complete,
        )
        for kind in sorted({*rules.kinds, *retained})
    ]


def lookup_stores(rules: Rules) -> list[KindStore]:
    """Return stores for everything that rules look up at admission,
    with the fields that they read.
    """
    return [
        KindStore(kind, lookup_namespace(kind, rules), fields, summary=_SUMMARIES.get(kind))
        for kind, fields in retained_fields(rules).items()
        if not kind.not_at_admission
    ]


_SUMMARIES: Final = {
    POD: Summary(pod_summary.summarize, pod_summary.compress, pod_summary.decompress)
}
"""Kinds of which the webhook keeps less than the fields that rules read."""
