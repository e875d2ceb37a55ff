"""The cluster of a snapshot behind an API server, to compare what a command says of both."""

from __future__ import annotations

from tests.fake_api import FakeApi
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.model.kubernetes.kinds import BUILT_IN_GROUPS


def serve(fake: FakeApi, snapshot: Snapshot) -> None:
    """Install every kind that the snapshot has, and every kind that each API server has,
    with their objects.
    """
    fake.time = clock.instant(snapshot.time)
    fake.version = snapshot.server_version or fake.version
    for kind in (*kinds.ALL, EVENT):
        if kind.group in BUILT_IN_GROUPS:
            fake.install(kind)
    for obj in snapshot:
        kind, version = (
            kinds.of(obj) or kinds.guess(obj.api_version, obj.kind),
            obj.api_version.rpartition("/")[2],
        )
        fake.install(kind, version=version)
        listed = {
            key: value for key, value in obj.data.items() if key not in ("apiVersion", "kind")
        }
        fake.put(kind, listed if kind.group in BUILT_IN_GROUPS else dict(obj.data), version=version)
