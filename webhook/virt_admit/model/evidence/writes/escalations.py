"""Roles that the API server forbids to write, as the writer does not have all of their rules.

The writer of a role needs each of its rules. An operator of which only the image was raised has
the ClusterRole of its former release, so it may not write the roles of the new one. Sources:
kubernetes/kubernetes:pkg/registry/rbac/validation/rule.go#ConfirmNoEscalation,
:pkg/apis/rbac/v1/evaluation_helpers.go#CompactString #ResourceMatches;
kubevirt/kubevirt#8595.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Field, Object
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
    r"(?:ResourceNames:\[(?P<names>[^\]]{0,999})\], )?Verbs:\[(?P<verbs>[^\]]{0,999})\]\}"
)
"""A rule about URLs is none of resources, and is left to the words."""
_QUOTED: Final = re.compile(r'\\?"([^"\\]{0,253})\\?"')
_MOST: Final = 200
"""Each rule stands for all combinations of its parts, and a few of them are told."""


class _Right(NamedTuple):
    group: str
    resource: str
    verb: str
    name: str = ""
    """The only object that it is about; empty: all."""

    @property
    def words(self) -> str:
        """``get virtualmachines/objectgraph``, or with a name after it."""
        return " ".join(filter(None, (self.verb, self.resource, self.name)))


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
        return names(dict.fromkeys(each.words for each in self.missing), 200)


def of(said: str, cluster: Cluster) -> Escalation | None:
    """Return which rules the writer of a role does not have; None: the words say something else,
    or its ClusterRoles are known to have these rules now, as far as they could be parsed.
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


def are_granted(said: str, cluster: Cluster) -> bool:
    """Return whether words are about such a refusal, and its writer has all of its rules now."""
    found = _SAID.search(said)
    if found is None or of(said, cluster) is not None:
        return False
    rules, every = said.count("{", found.end()), len(_RULE.findall(said, found.end()))
    return 0 < rules == every and len(list(islice(_rights(said), _MOST))) < _MOST


def _rights(said: str) -> Iterator[_Right]:
    for rule in _RULE.finditer(said):
        every = [_QUOTED.findall(rule[each] or "") for each in ("groups", "resources", "verbs")]
        only = _QUOTED.findall(rule["names"] or "") or [""]
        for group in every[0]:
            for resource in every[1]:
                yield from (
                    _Right(group, resource, verb, name) for verb in every[2] for name in only
                )


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
    below = right.resource.partition("/")[2]
    resources = {right.resource, f"*/{below}"} if below else {right.resource}
    wanted = (("apiGroups", {right.group}), ("resources", resources), ("verbs", {right.verb}))
    return any(
        _is_about(rule, right.name)
        and all({"*", *each} & {own.text for own in rule[key].items()} for key, each in wanted)
        for rule in role["rules"].items()
    )


def _is_about(rule: Field, name: str) -> bool:
    """Return whether a rule is about all objects, or about the one that is asked for."""
    only = rule["resourceNames"]
    return not only.present or (bool(name) and name in {each.text for each in only.items()})
