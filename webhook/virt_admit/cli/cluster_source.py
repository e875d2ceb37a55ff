"""The cluster that the options name: a snapshot from a file,
or objects read from the API server.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from virt_admit.cli.options import ClusterOptions
from virt_admit.cli.output import failure, progress, tell
from virt_admit.documents.files import walk_linked
from virt_admit.documents.reader import Document
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.sanitize import line
from virt_admit.policy import files
from virt_admit.policy.files import PolicyConfigMap
from virt_admit.policy.policy import Policy
from virt_admit.reports import unavailable_data
from virt_admit.rules import listed_rules
from virt_admit.settings import SettingError

if TYPE_CHECKING:
    from virt_admit.kube.cache import ClusterCache, KindStore
    from virt_admit.kube.client import ApiClient

AnyCluster: TypeAlias = "Snapshot | ClusterCache"


def connect(source: ClusterOptions) -> ApiClient:
    """Return the client of a live cluster, without any request to it.

    A command has one for each cluster.

    Raises:
        ClickException: the options and the kubeconfig name no cluster.
    """
    from virt_admit.kube import client  # noqa: PLC0415 - importing kubernetes takes 0.3 s

    context = click.get_current_context(silent=True)
    clients = context.meta.setdefault(__name__, {}) if context is not None else {}
    if source not in clients:  # a second one would run a credential plugin again
        try:
            clients[source] = client.ApiClient.connect(
                source.kubeconfig, source.context, _CONNECTIONS
            )
        except SettingError as error:
            raise failure(error) from None
    found: ApiClient = clients[source]
    return found


_CONNECTIONS: Final = 4


def load_policy(name: str | None, configmap: str, live: ClusterOptions | None) -> Policy:
    """Return the policy as of today: the named one, else that of the live cluster,
    else ``default``.

    Args:
        name: the value of ``--policy``.
        configmap: the value of ``--policy-configmap``.
        live: the options of the live cluster; None if no live cluster is read.

    Raises:
        PolicyError, SettingError, OSError: the policy is not valid or cannot be read.
    """
    rules, today = listed_rules(), datetime.date.today()
    if name or live is None:
        return files.load_policy(name or "default", rules).at(today)
    # checking files does not need urllib3
    from virt_admit.kube import policy_configmap  # noqa: PLC0415
    from virt_admit_certs.kube_api import ApiError  # noqa: PLC0415

    place = PolicyConfigMap.parse(configmap)
    try:
        return policy_configmap.load(connect(live), place, rules).at(today)
    except ApiError as error:
        named = ". Name the policy: --policy FILE|audit|default|strict"
        remedy = named if error.reason == "forbidden" else ""
        raise SettingError(f"{error}{remedy}") from None


def load_cluster(
    source: ClusterOptions,
    looks_up: Sequence[Kind],
    namespace: str = "",
    quiet: bool = False,
    further: bool = True,
) -> AnyCluster:
    """Return the snapshot that the options name, or these kinds of the live cluster.

    Args:
        source: the options.
        looks_up: the kinds to list in a live cluster.
        namespace: where to list a kind that may not be listed in all namespaces; empty: nowhere.
        quiet: show no progress.
        further: also read the events and the other kinds of a live cluster, for evidence.

    Raises:
        ClickException: options exclude each other, the snapshot is not valid, or the cluster does
            not answer.
    """
    source.require_one()
    if source.cluster is None:
        # checking files alone needs no cache
        from virt_admit.kube.cache import KindStore  # noqa: PLC0415

        stores = [KindStore(kind, packed=True) for kind in dict.fromkeys(looks_up)]
        cluster = list_live(source, stores, namespace, quiet)
        if further:
            read_events(source, cluster, namespace, quiet)
            read_further_kinds(source, cluster, namespace, quiet)
        return cluster
    try:
        # checking files alone needs no snapshot
        from virt_admit.kube import snapshots  # noqa: PLC0415

        snapshot = snapshots.load(source.cluster, tell)
    except (SettingError, OSError) as error:
        raise failure(error) from None
    if source.cluster.is_dir() and not any(walk_linked(source.cluster)):
        raise click.ClickException(
            f"{source.cluster}: no file *.yaml, *.yml or *.json is in this folder. {_SAVE}"
        )
    return snapshot


_SAVE: Final = "Save a snapshot with: virt-admit scan --save FILE"


def require_judged(cluster: Snapshot, judged_kinds: Iterable[Kind], source: Path) -> None:
    """Accept a snapshot only if something is known of one of the kinds to judge.

    An empty file is not a clean cluster.

    Raises:
        ClickException: the snapshot has no object of these kinds and says of none of them that it
            is complete.
    """
    scopes = {scope.rpartition("/")[2] for scope in cluster.complete}
    if not any(
        cluster.known(kind) or cluster.sees_all(kind) or kind.resource in scopes
        for kind in judged_kinds
    ):
        problem = "it has no object that a rule judges, and is complete for no such kind"
        remedy = "Save one with: virt-admit scan --save FILE"
        raise click.ClickException(f"{source} is not a snapshot of a cluster: {problem}. {remedy}")


def list_live(
    source: ClusterOptions, stores: Sequence[KindStore], namespace: str = "", quiet: bool = False
) -> ClusterCache:
    """List the kinds of these stores in the live cluster once, and show progress on a terminal.

    Raises:
        ClickException: the options name no cluster, or it does not answer.
    """
    # importing kubernetes takes 0.3 s
    from virt_admit.kube import informers, named_objects  # noqa: PLC0415
    from virt_admit_certs.kube_api import ApiError  # noqa: PLC0415 - importing urllib3 takes 0.1 s

    server = connect(source)
    try:
        with progress("reading", len(stores), quiet) as show:
            cluster = informers.snapshot(server, stores, namespace, show)
        named_objects.read(server, cluster)
        return cluster
    except ApiError as error:
        raise click.ClickException(f"{error}{_REMEDIES.get(error.reason, '')}") from None


def read_events(
    source: ClusterOptions, cluster: ClusterCache, namespace: str = "", quiet: bool = False
) -> None:
    """Add the events that say what goes wrong, and say which may be missing. It never fails."""
    from virt_admit.kube.bounded_events import BoundedEvents  # noqa: PLC0415 - urllib3 takes 0.1 s

    events = BoundedEvents()
    events.read(connect(source), namespace)
    cluster.stores[events.kind] = events
    _tell_missing(source, events.missing, quiet)


def read_further_kinds(
    source: ClusterOptions, cluster: ClusterCache, namespace: str = "", quiet: bool = False
) -> None:
    """Add the objects of other kinds, and say which are missing. It never fails."""
    from virt_admit.kube import further_kinds  # noqa: PLC0415 - importing urllib3 takes 0.1 s

    missing = further_kinds.read(connect(source), cluster, namespace)
    found = further_kinds.complete_names(cluster)
    # check of files needs none
    from virt_admit.forecasts.placement.components import driver_registrations  # noqa: PLC0415

    cluster.provide(driver_registrations.names_by_kind, lambda: found, ())
    _tell_missing(source, missing, quiet)


def _tell_missing(source: ClusterOptions, missing: str, quiet: bool) -> None:
    if missing and not quiet:
        where = f"cluster {source.context}: " if source.context else ""
        tell(f"{where}not read: {missing}. Reports may lack what they say")


_REMEDIES: Final = {
    "unreachable": ". Check the context and the network: kubectl cluster-info",
    "unauthorized": ". Log in again: kubectl auth whoami",
}
"""What to do about errors of the API server, by their class."""


def warn_unreadable(cluster: AnyCluster, looks_up: Iterable[Kind] | None = None) -> None:
    """Print on stderr which kinds (None: of all) could not be listed, and the right to ask for."""
    if problem := forbidden(cluster, looks_up):
        tell(problem)


def print_forbidden(cluster: AnyCluster, looks_up: Iterable[Kind], form: str) -> None:
    """Say which kinds may not be listed: a text report ends with it,
    other formats leave it to stderr.
    """
    if problem := forbidden(cluster, looks_up):
        click.echo(line(problem), err=form != "text")


def forbidden(cluster: AnyCluster, looks_up: Iterable[Kind] | None = None) -> str:
    """Return which of these kinds (None: of all) may not be listed, and the right to ask for;
    empty if none.
    """
    unreadable = cluster.unreadable
    if looks_up is not None:
        unreadable = unreadable.intersection(kind.resource for kind in looks_up)
    return unavailable_data.forbidden(unreadable)


def with_objects(cluster: AnyCluster, objects: Iterable[Object]) -> Snapshot:
    """Return the cluster with these objects added. They replace objects with the same name."""
    known = cluster.complete, cluster.unreadable, cluster.server_version, cluster.time
    return Snapshot((*cluster, *objects), *known)


def namespaced_object(document: Document, namespace: str) -> Object:
    """Return the object of a document, in this namespace if its kind is namespaced and it names
    none.
    """
    obj = Object(document.data)
    kind = kinds.of(obj)
    is_namespaced = kind is not None and kind.namespaced
    return Object(obj.data, obj.namespace or namespace) if is_namespaced else obj
