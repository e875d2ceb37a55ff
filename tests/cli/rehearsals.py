"""Rehearsals of upgrades as the verb prints them."""

from __future__ import annotations

from virt_admit.cli.commands.upgrade import forecast
from virt_admit.forecasts.upgrade.rehearsal import rehearse


def upgrade(cluster, options, output, start=None):
    """Return the rehearsal as ``text`` or ``json``, and the exit code."""
    found = forecast(rehearse(cluster, options), cluster, start)
    return found.render(output), found.code
