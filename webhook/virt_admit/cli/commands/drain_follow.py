"""``virt-admit drain NODE --follow``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from virt_admit.forecasts.drain import node_scope
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.sanitize import line

if TYPE_CHECKING:
    from virt_admit.cli.follow_options import FollowOptions
    from virt_admit.cli.options import ClusterOptions


def run(
    node: str, options: FollowOptions, sources: Sequence[tuple[str, ClusterOptions]], form: str
) -> int:
    """Follow the drain of a node, and return the exit code.

    Raises:
        UsageError: options exclude each other.
        ClickException: no cluster is named, or the node does not exist.
    """
    from virt_admit.cli import following  # noqa: PLC0415 - importing kubernetes takes 0.3 s
    from virt_admit.kube.client import ApiClient  # noqa: PLC0415
    from virt_admit.kube.event_reader import EventReader  # noqa: PLC0415
    from virt_admit.kube.moments import ScopedMoments  # noqa: PLC0415
    from virt_admit.reports.drain.follow import READS, DrainFollower  # noqa: PLC0415

    (_, source), *others = sources
    if others or source.cluster is not None:
        raise click.UsageError("--follow needs one live cluster")
    display = options.display(form)
    live = following.live_cluster(source, READS, node_scope.KEYS)
    moments = ScopedMoments(live, partial(node_scope.of_node, node), (candidates.whole_scheduler,))
    limits = following.FollowLimits(timeout=options.timeout, stalled=options.stalled)
    events = EventReader(ApiClient.connect(source.kubeconfig, source.context))
    follower = DrainFollower(node, partial(events.last_warning, VMI))
    try:
        return following.follow(live, follower, display, limits, moments)
    except LookupError as error:
        raise click.ClickException(line(str(error.args[0]))) from None
