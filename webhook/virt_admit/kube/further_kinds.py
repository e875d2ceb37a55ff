"""The custom resources of a live cluster that no rule names, within bounds.

What an object reports is evidence whatever its kind is (docs/decisions/evidence.md). Discovery
names the kinds. A kind that may not be listed, or is left out by a bound, stays unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from virt_admit.kube.cache import ClusterCache, KindStore, StoreState, names_of
from virt_admit.kube.client import ApiClient, PageRequests, malformed_as_error, page_items, path_of
from virt_admit.model.kubernetes import json_codec, kinds
from virt_admit.model.kubernetes.kinds import API_SERVICE, Kind
from virt_admit.model.messages import count, names
from virt_admit_certs.kube_api import ApiError, read_body

CONNECTIONS: Final = 4
SECONDS: Final = 30.0
"""For all kinds: OpenShift and Rancher have 300 of them."""
MOST_BYTES: Final = 24 << 20
"""Text that is kept of all kinds: what goes through all objects takes a second for 4 MB."""
_MOST_OF_A_KIND: Final = 4 << 20
_LONGEST: Final = 4_000
"""Characters of a text. Longer ones are neither a message nor a name."""
_SELECTED: Final = {"clusterserviceversions.operators.coreos.com": "!olm.copiedFrom"}
"""Label selectors by kind: OLM copies ClusterServiceVersions into every namespace.

Source: operator-framework/api:pkg/operators/v1alpha1/clusterserviceversion_types.go#CopiedLabelKey.
"""
_REFUSALS: Final = 30
"""Kinds in a row that may not be listed, before the others are not asked for."""
_REFUSED: Final = (401, 403)
_TOO_MUCH: Final = "as a whole: there is too much of them"
_AGGREGATED: Final = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
"""All kinds in one answer, since Kubernetes 1.27. Earlier releases answer with the groups."""
_ADMISSION: Final = "admissionregistration.k8s.io"
_BUILT_IN: Final = frozenset(("", "apps", "autoscaling", "batch", "extensions", "policy")) | {
    f"{group}.k8s.io"
    for group in (
        *(
            "admissionregistration",
            "apiextensions",
            "apiregistration",
            "authentication",
            "authorization",
        ),
        *(
            "certificates",
            "coordination",
            "discovery",
            "events",
            "flowcontrol.apiserver",
            "internal.apiserver",
        ),
        *("node", "rbac.authorization", "storage", "storagemigration"),
    )
}
"""Groups of which only what is named is read. So no Secret and no ConfigMap ever is."""
_POLICIES: Final = frozenset(
    (_ADMISSION, kind) for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
)
"""Kinds of these that are read all the same: why a write is denied. Kubernetes has them since 1.30.
"""
_HOLD_KEYS: Final = re.compile(
    r"auth|credential|kubeconfig|password|secret|session|settings\Z|token|users?\Z|(kubeadm|"
    r"machine|provider|rke2)config(template)?s\Z|bundle(deployment)?s\Z|helm(chart|chartconfig|"
    r"release)s\Z|(argocd|datadogagent|grafana|keycloakrealmimport|vaultconnection)s\Z|keys\Z|"
    r"keypairs\Z"
)
"""Kinds that may hold keys, such as the tokens of Rancher, or whole files:
they are not asked for.
"""
_DROPPED: Final = frozenset(
    (
        "data",
        "stringData",
        "userData",
        "values",
        "valuesContent",
        "password",
        "token",
        "secret",
        "variables",
    )
)
"""Fields that may hold keys."""
_REQUIREMENT: Final = {"key", "operator", "values"}
"""The fields of a requirement of a label selector."""
_COMPUTED: Final = frozenset(
    ("metrics.k8s.io", "packages.operators.coreos.com", "subresources.kubevirt.io")
)
"""Groups of aggregated APIs, where these may not be listed."""


class _Found(NamedTuple):
    kind: Kind
    version: str
    """The preferred one of the API server."""
    has_status: bool


class _Discovered(NamedTuple):
    """The kinds of an API server."""

    found: tuple[_Found, ...]
    unknown: frozenset[str]
    """Groups of which not all kinds are known, because their API server does not answer."""


class OtherKinds:
    """Finds stores by group and name alone: code may guess the version and the plural of a kind."""

    def __init__(self, cluster: ClusterCache, known: _Discovered) -> None:
        self._served = {(each.kind.group, each.kind.kind) for each in known.found}
        self._unknown = known.unknown | _BUILT_IN
        self._by_name = {(kind.group, kind.kind): store for kind, store in cluster.stores.items()}

    def find(self, kind: Kind) -> KindStore | None:
        """Return the store of a kind; an empty one if the API server does not have the kind."""
        name = kind.group, kind.kind
        found = self._by_name.get(name)
        if found is None and name not in self._served and kind.group not in self._unknown:
            found = self._by_name[name] = KindStore(kind)
            found.replace({}, StoreState.ABSENT)
        return found


def read(api: ApiClient, cluster: ClusterCache, namespace: str = "") -> str:
    """Add the objects of all custom resources that were not listed yet.

    Args:
        api: the API server.
        cluster: what was listed.
        namespace: where to list kinds that cannot be listed in the whole cluster; empty: nowhere.

    Returns:
        What is missing; empty: nothing is.
    """
    with api.bounded(SECONDS):
        try:
            known = _discover(api)
        except ApiError as error:
            return f"the kinds of other operators: {error}"
        elsewhere = _served_elsewhere(cluster)
        listed = {_name(kind) for kind in cluster.stores}
        wanted = [
            each
            for each in known.found
            if (_name(each.kind) in _POLICIES or each.kind.group not in _BUILT_IN | elsewhere)
            and not _HOLD_KEYS.search(each.kind.plural)
            if _name(each.kind) not in listed
        ]
        wanted.sort(key=lambda each: (not each.has_status, each.kind))
        reading = _Reading(api, wanted, namespace)
        for store in reading.stores():
            cluster.stores[store.kind] = store
    cluster.find_other = OtherKinds(cluster, known).find
    said = list(reading.missing())
    if unknown := known.unknown - elsewhere:
        said.append(f"the kinds of {names(sorted(unknown))}, which did not answer")
    return ", and ".join(said)


def _name(kind: Kind) -> tuple[str, str]:
    return kind.group, kind.kind


def complete_names(cluster: ClusterCache) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return the names of the objects of each kind that was listed as a whole,
    by group and kind.
    """
    return {
        (kind.group, kind.kind): frozenset(obj.name for obj in store)
        for kind, store in sorted(cluster.stores.items())
        if kind.group not in _BUILT_IN and store.complete and len(store)
    }


class _Reading:
    """The first page of each of some kinds."""

    def __init__(self, api: ApiClient, wanted: Iterable[_Found], namespace: str) -> None:
        self._api, self._wanted, self._namespace = api, tuple(wanted), namespace
        self._bytes = 0
        self._refused = 0
        """In a row."""
        self._missing: dict[str, list[str]] = {}
        """Kinds by the reason."""

    def stores(self) -> Iterator[KindStore]:
        """Yield a store for each kind that can be read, in their order."""
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            yield from (
                found for found in threads.map(self._read, self._wanted) if found is not None
            )

    def missing(self) -> Iterator[str]:
        """Yield what could not be read, by the reason."""
        for reason, resources in sorted(self._missing.items()):
            yield f"{count(len(resources), 'kind')} ({names(sorted(resources))}) {reason}"

    def _read(self, each: _Found) -> KindStore | None:
        try:
            if self._refused < _REFUSALS and self._bytes < MOST_BYTES:
                return self._listed(each)
            many = f"not asked for, as {_REFUSALS} in a row were refused"
            self._lacks(each, many if self._refused >= _REFUSALS else _TOO_MUCH)
        except ApiError as error:
            self._refused += error.status in _REFUSED
            if error.status not in (404, 405):
                self._lacks(each, self._reason(error))
        return None

    def _lacks(self, each: _Found, reason: str) -> None:
        self._missing.setdefault(reason, []).append(each.kind.resource)

    def _reason(self, error: ApiError) -> str:
        if error.status in _REFUSED:
            return "that this account may not list"
        if error.status:
            return f"for which the API server answered with status {error.status}"
        if self._api.out_of_time:
            return "for which no time was left"
        return f"with errors: {error}"

    def _listed(self, each: _Found) -> KindStore:
        try:
            return self._first_page(each, "")
        except ApiError as error:
            if error.status != 403 or not self._namespace or not each.kind.namespaced:
                raise
            return self._first_page(each, self._namespace)

    def _first_page(self, each: _Found, namespace: str) -> KindStore:
        store, size = KindStore(each.kind, namespace, packed=True), 0
        objects: dict[str, dict[str, Any]] = {}
        selector = _SELECTED.get(each.kind.resource, "")
        requests = PageRequests({"labelSelector": selector} if selector else {})
        body = self._api.page(path_of(each.kind, namespace, version=each.version), requests)
        with malformed_as_error(), self._api.one_page:
            page = json_codec.loads_bounded(body)
            more = bool(page["metadata"].get("continue"))
            for item in page_items(page):
                if size > _MOST_OF_A_KIND:
                    more = True
                    break
                store.add(objects, _shortened(item))
                home, name = names_of(item)
                size += len(objects[home][name])
        self._bytes += size
        self._refused = 0
        if more:
            self._lacks(each, _TOO_MUCH)
        store.replace(objects, StoreState.WAITING if more or selector else StoreState.LISTED)
        return store


def _shortened(value: Any) -> Any:
    """Return an object without its long texts (icons, examples,
    scripts) and without what may hold keys.

    The values of a label selector hold none.
    """
    if isinstance(value, dict):
        selects = value.keys() == _REQUIREMENT and isinstance(value["values"], list)
        return {
            key: _shortened(each)
            for key, each in value.items()
            if (selects or key not in _DROPPED) and not _is_long(each)
        }
    if isinstance(value, list):
        return [_shortened(each) for each in value if not _is_long(each)]
    return value


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > _LONGEST


def _discover(api: ApiClient) -> _Discovered:
    """Return the kinds that the API server has and that can be listed.

    Raises:
        ApiError: it does not say.
    """
    with malformed_as_error():
        answer = json_codec.loads(read_body(api.get("/apis", {}, accept=_AGGREGATED)))
        if answer["kind"] == "APIGroupDiscoveryList":
            return _aggregated(answer.get("items") or [])
        return _by_group(api, answer.get("groups") or [])


def _aggregated(groups: Iterable[Mapping[str, Any]]) -> _Discovered:
    found: dict[tuple[str, str], _Found] = {}
    unknown = set()
    for group in groups:
        name = group["metadata"]["name"]
        for version in group.get("versions") or ():  # the preferred one first
            if version.get("freshness") == "Stale":
                unknown.add(name)
            for each in version.get("resources") or ():
                # null: the API does not say it
                named = (each.get("responseKind") or {}).get("kind")
                if named and "list" in (each.get("verbs") or ()):
                    below = {sub["subresource"] for sub in each.get("subresources") or ()}
                    kind = named, each["resource"], each["scope"] == "Namespaced"
                    found.setdefault(
                        (name, kind[0]), _of(name, version["version"], *kind, "status" in below)
                    )
    return _Discovered(tuple(found.values()), frozenset(unknown))


def _by_group(api: ApiClient, groups: Iterable[Mapping[str, Any]]) -> _Discovered:
    """Return the kinds of each group. It takes a request for each version of a group."""
    found: dict[tuple[str, str], _Found] = {}
    unknown = set()
    for group in groups:
        name, preferred = group["name"], (group.get("preferredVersion") or {}).get("version")
        versions = [each["version"] for each in group.get("versions") or ()]
        if name in _BUILT_IN - {_ADMISSION}:
            continue
        for version in sorted(versions, key=lambda each: each != preferred):
            try:
                with malformed_as_error():
                    answer = json_codec.loads(api.body(f"/apis/{name}/{version}", {}))
                    resources = answer.get("resources") or ()
            except ApiError:
                unknown.add(name)
                continue
            every = {each["name"] for each in resources}
            for each in resources:
                if "/" not in each["name"] and "list" in (each.get("verbs") or ()):
                    kind = each["kind"], each["name"], each["namespaced"]
                    found.setdefault(
                        (name, kind[0]), _of(name, version, *kind, f"{kind[1]}/status" in every)
                    )
    return _Discovered(tuple(found.values()), frozenset(unknown))


def _of(
    group: str, version: str, kind: str, plural: str, namespaced: bool, has_status: bool
) -> _Found:
    known = kinds.find(group, kind) or Kind(group, (version,), plural, kind, namespaced)
    return _Found(known, version, has_status)


def _served_elsewhere(cluster: ClusterCache) -> frozenset[str]:
    """Return the groups of aggregated APIs. What they answer with is often computed, as metrics."""
    services = (each for each in cluster.known(API_SERVICE) if each.at("spec", "service").is_map)
    return frozenset(each.at("spec", "group").text or "" for each in services) | _COMPUTED
