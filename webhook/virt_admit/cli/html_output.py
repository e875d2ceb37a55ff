"""Writing pages of ``-o html``: to stdout, to a file, or one for each owner into a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from virt_admit.cli.options import ClusterOptions
from virt_admit.cli.output import failure, write
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.unavailable_data import forbidden

if TYPE_CHECKING:
    from virt_admit.kube.cache import ClusterCache
    from virt_admit.reports.html.owners import Owners
    from virt_admit.reports.html.page import Page

T = TypeVar("T")

Evidence = tuple[tuple[str, str], ...]
"""What a report rests on: names and values."""


def evidence(source: ClusterOptions, cluster: Snapshot | ClusterCache) -> Evidence:
    """Return what a report rests on: the cluster and its version, as far as they are known."""
    if source.cluster is not None:
        where = f"snapshot {source.cluster}"
    else:
        where = f"live cluster, context {source.context}" if source.context else "live cluster"
    version = cluster.server_version
    refused = forbidden(cluster.unreadable)
    shown = (("API server", version), ("time", cluster.time), ("not readable", refused))
    return (("cluster", where), *((name, value) for name, value in shown if value))


@dataclass(frozen=True, slots=True)
class OwnerPages:
    """The page about everything, and how to make one for each owner."""

    whole: Page
    split: Callable[[Owners], Mapping[str, Page]] = lambda _: {}

    @classmethod
    def of(
        cls, whole: Page, split: Callable[[Owners], Mapping[str, T]], page: Callable[[T, str], Page]
    ) -> OwnerPages:
        """Return the pages: ``split`` makes the part of each owner, and ``page`` the page about it,
        with the line that names the owner.
        """

        def pages(by: Owners) -> dict[str, Page]:
            return {owner: page(part, by.subject(owner)) for owner, part in split(by).items()}

        return cls(whole, pages)


def publish(pages: OwnerPages, file: str | None, pages_by: str | None) -> None:
    """Write the page, or with ``--pages-by`` one page for each owner and the index.

    Raises:
        ClickException: a file cannot be written.
    """
    from virt_admit.reports.html import owners, page  # noqa: PLC0415 - importing Jinja2 takes time

    if pages_by is None or file is None:
        write(page.render(pages.whole), file)
        return
    by = owners.Owners.parse(pages_by)
    try:
        owners.write(Path(file), owners.files(pages.whole, pages.split(by), by))
    except OSError as error:
        raise failure(error) from None
