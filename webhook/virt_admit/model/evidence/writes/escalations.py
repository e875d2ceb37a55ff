"""Roles that the API server forbids to write, as the writer does not have all of their rules.

The writer of a role needs each of its rules. An operator of which only the image was raised has
the ClusterRole of its former release, so it may not write the roles of the new one. Sources:
kubernetes/kubernetes:pkg/registry/rbac/validation/rule.go#ConfirmNoEscalation;
kubevirt/kubevirt#8595.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names

_GROUP: Final = "rbac.authorization.k8s.io"
ROLE: Final = Kind(_GROUP, ("v1",), "clusterroles", "ClusterRole", namespaced=False)
_BINDING: Final = Kind(_GROUP, ("v1",), "clusterrolebindings", "ClusterRoleBinding")
"""Only snapshot files have them."""
_SAID: Final = re.compile(
    r'user \\?"system:serviceaccount:(?P<space>[\w-]{1,63}):(?P<name>[\w.-]{1,253})\\?"'
    r"(?:(?! is attempting).){0,600} is attempting to grant RBAC permissions not currently held:"
)
_RULE: Final = re.compile(
    r"\{APIGroups:\[(?P<groups>[^\]]{0,999})\], Resources:\[(?P<resources>[^\]]{0,999})\], "
    r"Verbs:\[(?P<verbs>[^\]]{0,999})\]\}"
)
_QUOTED: Final = re.compile(r'\\?"([^"\\]{0,253})\\?"')
_MOST: Final = 200
"""Each rule stands for all combinations of its parts, and a few of them are told."""


class _Right(NamedTuple):
    group: str
    resource: str
    verb: str


class Escalation(NamedTuple):
    """A role that was refused for rules that its writer does not have."""

    namespace: str
    account: str
    """The service account of the writer."""
    missing: tuple[_Right, ...]
    role: str
    """Its ClusterRole, as far as is known; empty: several, or none, are."""

    @property
    def writer(self) -> str:
        """Who lacks the rules."""
        bound = f"ClusterRole {self.role}" if self.role else "the ClusterRole bound to it"
        account = f"ServiceAccount {self.namespace}/{self.account}"
        return f"{bound}, of {account}," if self.role else f"{account}, by {bound},"

    @property
    def rules(self) -> str:
        """The rules that are missing: ``get virtualmachines/objectgraph``."""
        return names(dict.fromkeys(f"{each.verb} {each.resource}" for each in self.missing), 200)


def of(said: str, cluster: Cluster) -> Escalation | None:
    """Return which rules the writer of a role does not have; None: the words say something else,
    or its ClusterRoles are known to have these rules now.
    """
    found = _SAID.search(said)
    missing = tuple(dict.fromkeys(islice(_rights(said), _MOST))) if found is not None else ()
    if found is None or not missing:
        return None
    space, account = found["space"], found["name"]
    roles = list(_roles(space, account, cluster))
    left = tuple(each for each in missing if not any(_grants(role, each) for role in roles))
    own = roles[0].name if len(roles) == 1 else ""
    return Escalation(space, account, left, own) if left else None


def is_said(said: str) -> bool:
    """Return whether words are about such a refusal, whatever its writer has now."""
    return _SAID.search(said) is not None


def _rights(said: str) -> Iterator[_Right]:
    for rule in _RULE.finditer(said):
        every = [_QUOTED.findall(rule[each]) for each in ("groups", "resources", "verbs")]
        for group in every[0]:
            for resource in every[1]:
                yield from (_Right(group, resource, verb) for verb in every[2])


def _roles(space: str, account: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the known ClusterRoles that are bound to a service account."""
    bound = {
        binding.at("roleRef", "name").text
        for binding in cluster.known(_BINDING)
        for each in binding["subjects"].items()
        if each["kind"].text == "ServiceAccount"
        and (each["namespace"].text, each["name"].text) == (space, account)
    }
    yield from (role for role in cluster.known(ROLE) if role.name in bound)


def _grants(role: Object, right: _Right) -> bool:
    return any(
        not rule["resourceNames"].present
        and all(
            {"*", wanted} & {each.text for each in rule[key].items()}
            for key, wanted in zip(("apiGroups", "resources", "verbs"), right, strict=True)
        )
        for rule in role["rules"].items()
    )
