"""Certificates that the kubelet of a node asks for and does not get: the node runs,
and cannot report.

A kubelet whose client certificate has expired asks again with its bootstrap account; approvers
leave such a request for a node that exists already to people. A kubelet that started before its
host had its name asks under another one, which no Node has, until it is restarted.

A kubelet of a new host asks with its bootstrap account too. On OpenShift the request is approved
for a Machine without a Node alone, so that for a host that no Machine describes a person decides.

A host that has no certificate yet asks with the account of a bootstrap token (system:bootstrap:ID),
with another one of group system:bootstrappers, or with the node-bootstrapper of OpenShift. Any
other account that asks for the certificate of a node would act as that node.

A kubelet at work asks for its next client certificate when most of the time of the present one is
over, and for one to serve logs and exec. kube-controller-manager approves the former at once, and
the latter never. Sources:
kubernetes/kubernetes:pkg/kubelet/certificate/bootstrap/bootstrap.go #requestNodeCertificate,
:pkg/controller/certificates/approver/sarapprove.go#recognizers,
:pkg/kubelet/certificate/kubelet.go; kubernetes/client-go:util/certificate/certificate_manager.go;
openshift/cluster-machine-approver:pkg/controller/csr_check.go#authorizeCSR;
kubernetes/kubernetes:plugin/pkg/auth/authenticator/token/bootstrap/bootstrap.go;
openshift/cluster-machine-approver#32; https://github.com/poseidon/typhoon/pull/766;
https://github.com/okd-project/okd/issues/338.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, node_health, selectors
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, CSR, MACHINE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import count, cut_middle, names

_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
_ACCOUNT: Final = b"system:node:"
_SERVING: Final = "kubernetes.io/kubelet-serving"
_USER: Final = "system:node:"
_BOOTSTRAPPER: Final = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
_BOOTSTRAP: Final = "system:bootstrap:"
_BOOTSTRAPPERS: Final = "system:bootstrappers"
_FEW: Final = 3
"""Of so many hosts a person checks each, before one command approves their requests."""
_LOCAL: Final = "localhost"
"""The name of a host that has not got its own one yet."""
_RECENT: Final = timedelta(hours=1)
"""A kubelet asks again every 15 minutes: after this time the one that asked may be gone."""
_OVERDUE: Final = timedelta(minutes=30)
"""An approver decides within seconds, a person who approves by hand later."""
_LOST: Final = (
    "once its present client certificate ends, the node no longer reports, and its VMs can neither "
    "migrate nor be seen to end"
)
_UNSERVED: Final = (
    "without a serving certificate kubectl logs, exec and port-forward fail for pods of the node; "
    "drains and migrations go on"
)
_DECIDED: Final = frozenset(("Approved", "Denied", "Failed"))

READS: Final[Reads] = union(
    clock.READS,
    node_health.READS,
    {
        CSR: (
            "metadata.creationTimestamp",
            "spec.groups",
            "spec.request",
            "spec.signerName",
            "spec.username",
            "status.conditions",
        ),
        MACHINE: ("status.nodeRef",),
        CAPI_MACHINE: ("status.nodeRef",),
    },
)


class Pending(NamedTuple):
    """The requests of one kubelet that nothing has approved, the oldest first."""

    node: str
    requests: tuple[str, ...]
    since: str
    """How long the first waits, as `` for 50 min``; empty: not known."""
    alias: str = ""
    """The name of no Node under which the kubelet asks. Empty: it asks under its own."""

    @property
    def reason(self) -> str:
        """What is wrong, as the end of a sentence about the node."""
        plural = "s" * (len(self.requests) > 1)
        if self.alias:
            return (
                f"probably runs, and its kubelet calls itself {self.alias}: "
                f"{count(len(self.requests), 'CertificateSigningRequest')} of {_USER}{self.alias} "
                f"{'are' if plural else 'is'} pending{self.since}, and no Node has this name"
            )
        return (
            "runs, but its kubelet has no valid certificate and cannot report: its "
            f"CertificateSigningRequest{plural} {names(self.requests)} {'are' if plural else 'is'} "
            f"pending{self.since}"
        )

    @property
    def remedy(self) -> str:
        """What ends it, with a command."""
        newest = argument(self.requests[-1])
        if self.alias:
            return typed(self.advice, shell("kubectl", "describe", "csr", newest))
        return typed(
            f"do not fence {self.node}; check that the request is of {self.node}, approve it, and "
            "then the one for kubelet-serving that follows",
            shell("kubectl", "certificate", "approve", newest),
        )

    @property
    def advice(self) -> str:
        """What ends it, in fewer words and without the command."""
        if self.alias:
            return (
                f"on {self.node}, see the host name, set it (DHCP, DNS, hostnamectl) and restart "
                "kubelet; approve none of these requests"
            )
        newest = self.requests[-1]
        return f"approve CertificateSigningRequest {newest} of its kubelet, and do not fence it"

    @property
    def command(self) -> str:
        """The command of the remedy."""
        return self.remedy.partition(": ")[2]


class Joining(NamedTuple):
    """Kubelets of new hosts whose requests nothing has approved for long."""

    hosts: Mapping[str, str]
    """The newest request of each, by the name that the kubelet asks for."""
    reason: str

    @property
    def advice(self) -> str:
        """What lets them join, without the command."""
        hosts = names(tuple(self.hosts)[:_FEW])
        theirs = f"{hosts} is a host" if len(self.hosts) == 1 else f"{hosts} are hosts"
        see = shell("kubectl", "describe", "csr", *self._newest)
        return (
            f"if {theirs} of yours (see {see}), approve the newest request of each, then the one "
            "for kubelet-serving that follows"
        )

    @property
    def command(self) -> str:
        """The command that approves the newest requests of the first hosts."""
        return shell("kubectl", "certificate", "approve", *self._newest)

    @property
    def _newest(self) -> Sequence[str]:
        return [argument(each) for each in tuple(self.hosts.values())[:_FEW]]


def joining(cluster: Cluster) -> Joining | None:
    """Return the hosts that wait to become nodes of this cluster; None: none is known to.

    A request says which name it is for, but not whether that host is meant to join.
    """
    if unlisted(cluster, NODE):
        return None
    found = {
        name: requests
        for name, requests in sorted(cluster.cached(_pending).items())
        if find(cluster, NODE, "", name) is None and _asks_on(requests, cluster)
    }
    if not found:
        return None
    number = sum(map(len, found.values()))
    first = min((each for some in found.values() for each in some), key=_age_key)
    is_one = len(found) == 1
    who = names(found, 80)
    reason = (
        f"{who} ask{'s' * is_one} to join{clock.lasts(clock.age(first, cluster))} and "
        f"{'has' if is_one else 'have'} no Node: nothing approves "
        f"{'its' if is_one else 'their'} {count(number, 'CertificateSigningRequest')}"
    )
    newest = {name: some[-1].name for name, some in found.items()}
    return Joining(newest, f"{reason}{_approver(found, cluster)}")


def _asks_on(requests: Sequence[Object], cluster: Cluster) -> bool:
    """Return whether a kubelet has waited for long and still asks."""
    oldest, newest = clock.age(requests[0], cluster), clock.age(requests[-1], cluster)
    return oldest is not None and newest is not None and oldest >= _OVERDUE and newest <= _RECENT


def _approver(found: Mapping[str, Sequence[Object]], cluster: Cluster) -> str:
    """Return why the approver of OpenShift leaves the requests of new hosts to people."""
    asked = (each.at("spec", "username").text for some in found.values() for each in some)
    if not all(each == _BOOTSTRAPPER for each in asked) or _is_joining(cluster):
        return ""
    return ", as cluster-machine-approver needs a Machine without a Node, and none is there"


class Stranger(NamedTuple):
    """An account that asks for the certificate of a node, and with which no host joins."""

    requests: tuple[str, ...]
    """The newest first."""
    reason: str

    @property
    def remedy(self) -> str:
        """What to do, with the command that shows the request."""
        return typed(
            "approve none unless you asked for it, as with the certificate that account acts as "
            "the node; see who did",
            shell("kubectl", "describe", "csr", argument(self.requests[0])),
        )


def strangers(cluster: Cluster) -> Sequence[Stranger]:
    """Return the accounts with requests that wait for long, by name. The API server writes name
    and groups of the account into each request: without them it is not known."""
    waiting = (
        (node, each)
        for node, each in _undecided(cluster)
        if each.at("spec", "username").words and each.at("spec", "groups").present
        if not _is_of_host(each) and (clock.age(each, cluster) or _NONE) >= _OVERDUE
    )
    by_account = grouped(waiting, lambda each: each[1].at("spec", "username").words)
    return [_stranger(account, found) for account, found in sorted(by_account.items())]


_NONE: Final = timedelta()


def _stranger(account: str, found: Sequence[tuple[str, Object]]) -> Stranger:
    of = names(sorted({node for node, _ in found}), 80)
    newest = reversed(_by_age([request for _, request in found]))
    return Stranger(
        tuple(each.name for each in newest),
        f"{cut_middle(account, _LONGEST)} asks for the client certificate of node {of}, and no "
        "host joins with this account",
    )


_LONGEST: Final = 100
"""Characters of an account."""


class Renewal(NamedTuple):
    """A request of a kubelet at work that nothing has approved for long."""

    name: str
    since: str
    """As `` for 50 min``."""
    effect: str
    """What the node loses without it."""


def renewals(cluster: Cluster) -> Mapping[str, Sequence[Renewal]]:
    """Return the newest such request of each kind, by node. A kubelet asks again and again."""
    found: dict[str, dict[str, Object]] = {}
    for request in cluster.known(CSR):
        if is_overdue(request, cluster):
            signer, node = request.at("spec", "signerName").text or "", _asker(request)
            known = found.setdefault(node, {})
            known[signer] = max(request, known.get(signer, request), key=_age_key)
    return {
        node: [_renewal(each, cluster) for _, each in sorted(known.items())]
        for node, known in found.items()
    }


def _renewal(request: Object, cluster: Cluster) -> Renewal:
    return Renewal(request.name, clock.lasts(clock.age(request, cluster)), effect(request))


def effect(request: Object) -> str:
    """Return what a node loses while its kubelet does not get a certificate."""
    return _LOST if request.at("spec", "signerName").text == _CLIENT else _UNSERVED


def is_overdue(request: Object, cluster: Cluster) -> bool:
    """Return whether the kubelet of a node at work has waited for a certificate for long."""
    asked = request.at("spec", "signerName").text in (_CLIENT, _SERVING)
    age = clock.age(request, cluster)
    if not asked or _is_decided(request) or age is None or age < _OVERDUE:
        return False
    node = find(cluster, NODE, "", _asker(request))
    return node is not None and node.is_true("Ready")


def _asker(request: Object) -> str:
    """Return the node by whose account a request was made; empty: by another one."""
    return (request.at("spec", "username").text or "").partition(_USER)[2]


def _age_key(request: Object) -> tuple[str, str]:
    return request.created, request.name


def of_node(node: str, cluster: Cluster) -> Pending | None:
    """Return the requests of the kubelet of a node that does not report; None:
    none is known to be pending.
    """
    known = entry(cluster, _pending, node)
    own = (
        find(cluster, NODE, "", node) if known and node_health.silence_now(node, cluster) else None
    )
    silent = own.condition("Ready")["lastTransitionTime"].text if own is not None else None
    found = [each for each in known or () if silent and each.created > silent]
    if not found:  # a request from before the silence does not say that the node runs
        asks = cluster.cached(_misnamed).get(node)
        return asks if asks is not None and _is_own(asks) else None
    return _of(node, found, cluster)


def other_name(node: str, cluster: Cluster) -> str:
    """Return what to do with a node that does not report if it runs and asks under another name, or
    under one that cannot be read, as a clause; empty: no kubelet asks so. Another machine may be
    the one that asks, so the node may be down as well.
    """
    asks = cluster.cached(_misnamed).get(node)
    if asks is None:
        return cluster.cached(_unread).get(node, "")
    if _is_own(asks):
        return ""
    return f"if it runs and calls itself {asks.alias}, correct its host name instead"


def _is_own(asks: Pending) -> bool:
    """Return whether a name is that of a host without one, or the short or long one of the node:
    only then it is hardly another machine.
    """
    short = asks.alias.partition(".")[0]
    return short in (_LOCAL, asks.node.partition(".")[0])


def _of(node: str, found: Sequence[Object], cluster: Cluster, alias: str = "") -> Pending:
    since = clock.lasts(clock.age(found[0], cluster))
    return Pending(node, tuple(each.name for each in found), since, alias)


def _misnamed(cluster: Cluster) -> Mapping[str, Pending]:
    """Return the node that does not report whose kubelet may ask under a name that no Node has.

    The requests do not name the node: it must be the only one, they must have begun after it fell
    silent and go on, and no other machine may be on its way to become a Node, unless the name is
    that of a host without a name.
    """
    foreign = _foreign(cluster)
    if len(foreign) != 1 or unlisted(cluster, NODE):
        return {}
    ((alias, found),) = foreign.items()
    node = _only_silent(found, cluster)
    if not node or (alias.partition(".")[0] != _LOCAL and _is_joining(cluster)):
        return {}
    return {node: _of(node, found, cluster, alias)}


def _unread(cluster: Cluster) -> Mapping[str, str]:
    """Return what to do with the only node that does not report, if hosts ask for certificates
    under names that cannot be read.
    """
    found = _by_age([each for name, each in _asking(cluster) if not name and _is_of_host(each)])
    node = _only_silent(found, cluster) if found and not unlisted(cluster, NODE) else ""
    if not node or _is_joining(cluster):
        return {}
    newest, since = argument(found[-1].name), clock.lasts(clock.age(found[0], cluster))
    plural = f"s are pending{since}, the newest being" if found[1:] else f" is pending{since}:"
    return {
        node: (
            f"if it is up, see whether it asks for a certificate ({len(found)} "
            f"{CSR.kind}{plural} {newest}), and approve that one if its subject is {node} "
            f"({shell('kubectl', 'describe', 'csr', newest)} shows it; "
            f"{shell('kubectl', 'certificate', 'approve', newest)})"
        )
    }


def _only_silent(found: Sequence[Object], cluster: Cluster) -> str:
    """Return the only node that does not report, if requests began after it fell silent and go on;
    else empty.
    """
    silent = [node for node in cluster.known(NODE) if node_health.silence_now(node.name, cluster)]
    newest = clock.age(found[-1], cluster)
    if len(silent) != 1 or newest is None or newest > _RECENT:
        return ""
    since = silent[0].condition("Ready")["lastTransitionTime"].text
    return silent[0].name if since and found[0].created > since else ""


def _is_joining(cluster: Cluster) -> bool:
    """Return whether a machine may be on its way to become a Node."""
    return any(
        unlisted(cluster, kind)
        or any(not each.at("status", "nodeRef").is_map for each in cluster.known(kind))
        for kind in (MACHINE, CAPI_MACHINE)
    )


def _foreign(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the pending requests of kubelets whose name no Node has, by that name."""
    names_of_nodes = {node.name for node in cluster.known(NODE)}
    by_name: dict[str, list[Object]] = {}
    for request in cluster.known(CSR):
        name = _asker(request)
        of_kubelet = request.at("spec", "signerName").text in (_SERVING, _CLIENT)
        if name and of_kubelet and not _is_decided(request) and name not in names_of_nodes:
            by_name.setdefault(name, []).append(request)
    return {name: _by_age(some) for name, some in by_name.items()}


def _pending(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the requests for client certificates that hosts made and nothing has decided, by
    node."""
    by_node: dict[str, list[Object]] = {}
    for node, request in _undecided(cluster):
        if _is_of_host(request):
            by_node.setdefault(node, []).append(request)
    return {node: _by_age(some) for node, some in by_node.items()}


def _is_of_host(request: Object) -> bool:
    """Return whether a request was made with an account with which hosts join."""
    user = request.at("spec", "username").text or ""
    groups = (each.text for each in request.at("spec", "groups").items())
    return user.startswith(_BOOTSTRAP) or user == _BOOTSTRAPPER or _BOOTSTRAPPERS in groups


def _undecided(cluster: Cluster) -> Iterator[tuple[str, Object]]:
    """Yield the same with a node that is known."""
    yield from ((node, request) for node, request in _asking(cluster) if node)


def _asking(cluster: Cluster) -> Iterator[tuple[str, Object]]:
    """Yield the requests for client certificates of kubelets that nothing has decided, each with
    its node, if it can be read, but those of kubelets that renew theirs."""
    for request in cluster.known(CSR):
        # a kubelet that renews had a valid certificate then
        renews = (request.at("spec", "username").text or "").startswith(_USER)
        is_client = request.at("spec", "signerName").text == _CLIENT
        asks = is_client and not _is_decided(request) and not renews
        if asks:
            yield _subject(request), request


def _is_decided(request: Object) -> bool:
    return any(each["type"].text in _DECIDED for each in request.at("status", "conditions").items())


def _by_age(requests: Sequence[Object]) -> Sequence[Object]:
    return sorted(requests, key=_age_key)


def _subject(request: Object) -> str:
    """Return the node in the subject of a request: PEM in base64, of which the common name is text;
    empty: it is not read, or no Node can have this name.
    """
    try:
        pem = base64.b64decode(request.at("spec", "request").text or "", validate=True)
        lines = [line for line in pem.splitlines() if line and not line.startswith(b"-----")]
        subject = base64.b64decode(b"".join(lines))
    except (binascii.Error, ValueError):
        return ""
    begin = subject.find(_ACCOUNT)
    if begin < 1:
        return ""
    length = subject[begin - 1]  # DER writes the length of a short text before it
    name = subject[begin : begin + length].removeprefix(_ACCOUNT).decode("ascii", errors="replace")
    return name if selectors.is_dns_name(name) else ""
