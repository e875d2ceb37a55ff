"""Rehearsals of upgrades as the verb prints them."""

from __future__ import annotations

from virt_admit.cli.commands.upgrade import render
from virt_admit.cli.output import EXIT_CODES
from virt_admit.forecasts.upgrade.rehearsal import rehearse


def upgrade(cluster, options, output, start=None):
    """Return the rehearsal as ``text`` or ``json``, and the exit code."""
    result = rehearse(cluster, options)
    return render(result, output, start), EXIT_CODES[result.possible]
