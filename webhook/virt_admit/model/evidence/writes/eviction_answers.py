"""What the API server answered to evictions, in the words of what drains a node: a webhook denies
them or does not answer, a policy rejects them, or an account may not evict.

``kubectl drain`` repeats a refusal of code 429 alone, and reports the others with the pods. Budgets
are read elsewhere. KubeVirt's webhook denies what it then migrates, and Strimzi's Drain Cleaner
what it rolls, so neither counts. Sources: kubernetes/kubectl:pkg/drain/drain.go#evictPods;
kubernetes-sigs/cluster-api:internal/controllers/machine/drain/drain.go#ConditionMessage;
kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go,
:staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import webhook_bundles

_NAME: Final = r"[\w.-]{1,253}"
_ANSWER: Final = re.compile(
    rf'admission webhook \\?"(?P<denied>{_NAME})\\?" denied the request:? ?'
    rf'|failed calling webhook \\?"(?P<called>{_NAME})\\?":? ?'
    rf"|ValidatingAdmissionPolicy '{_NAME}' with binding '(?P<binding>{_NAME})' denied request:? ?"
    r'|User \\?"(?P<user>[\w.:@-]{1,253})\\?" cannot create resource \\?"pods/eviction\\?"'
)
_END: Final = re.compile(r",? error when |\]?$|\(will retry|\s\* Pods? |\n")
"""What follows the answer about a pod."""
_EVICTED: Final = re.compile(rf'pods/\\?"({_NAME})\\?" -n \\?"({_NAME})\\?"')
_LISTED: Final = re.compile(rf"(?<![\w./-])([a-z0-9][a-z0-9-]{{0,62}})/({_NAME})(?<![.])")
_UNREADABLE: Final = re.compile(r'no kind \\?"Eviction\\?" is registered for version')
"""What a webhook answers that was built without a version of Eviction
(kubernetes/apimachinery:pkg/runtime/error.go#notRegisteredErr)."""
_MAKES_WAY: Final = "drain-cleaner"


class EvictionAnswer(NamedTuple):
    """One answer about one pod, or about some."""

    webhook: str
    """The name of the webhook; empty: it is of none."""
    answers: bool
    """Whether that webhook answers."""
    binding: str
    """The ValidatingAdmissionPolicyBinding that rejects it; empty: none does."""
    user: str
    """The account that may not evict; empty: it may."""
    words: str
    """The reason, in one line."""
    pods: frozenset[str]
    """``namespace/name``, and other words of that form."""

    @property
    def is_unreadable(self) -> bool:
        """Whether the webhook can read no such Eviction, whatever the pod is."""
        return bool(_UNREADABLE.search(self.words))


def of(text: str) -> Iterator[EvictionAnswer]:
    """Yield the answers in a text, in its order."""
    begin, found = 0, list(_ANSWER.finditer(text))
    nexts = (*(each.start() for each in found[1:]), len(text))
    for match, limit in zip(found, nexts, strict=False):
        end = _END.search(text, match.end(), limit)
        before, begin = text[begin : match.start()], end.start() if end else limit
        denied, called = match["denied"] or "", match["called"] or ""
        if denied.endswith(webhook_bundles.PRODUCTS) or _MAKES_WAY in denied:
            continue
        pods = {f"{space}/{name}" for name, space in _EVICTED.findall(before)}
        pods |= {f"{space}/{name}" for space, name in _LISTED.findall(before)}
        words = " ".join(text[match.end() : begin].split()).replace('\\"', '"')
        yield EvictionAnswer(
            *(denied or called, not called, match["binding"] or "", match["user"] or ""),
            *(words.strip(" :;,"), frozenset(pods)),
        )
