"""Rules that look objects up, and what a look-up gives."""

from __future__ import annotations

import dataclasses

from virt_admit.kube.cache import ClusterCache, StoreState
from virt_admit.kube.informers import InformerTimeouts
from virt_admit.kube.stores import lookup_stores
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.reads import union
from virt_admit.rules import Rules, load_rules

QUICK = InformerTimeouts(watch=30, silence=30, absent=0.1, longest=0.1, version=0.05)


def looking_up(*reads, kinds=(), at_admission=True):
    """Rules that look up these kinds."""
    some = next(iter(load_rules()))
    declared = union(*(rule.reads for rule in load_rules().at_admission))
    reads = {kind: declared.get(kind, ()) for kind in reads}
    return Rules([dataclasses.replace(some, reads=reads, kinds=kinds, at_admission=at_admission)])


def in_webhook(objects):
    """Return objects as the webhook keeps them for the look-ups of its rules."""
    stores = lookup_stores(load_rules().at_admission)
    for store in stores:
        by_namespace = {}
        for each in objects:
            if kinds.of(each) == store.kind:
                store.add(by_namespace, each.data)
        store.replace(by_namespace, StoreState.LISTED)
    return ClusterCache(stores, "v1.33.0")


def obj(name, namespace="", **fields):
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **fields}


def answer(cluster, kind, name, namespace=""):
    """What a look-up gives: "there", "none" or "unseen"."""
    try:
        return "none" if cluster.get(kind, namespace, name) is None else "there"
    except Unseen:
        return "unseen"
