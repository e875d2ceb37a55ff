"""Hypothesis tries the same cases in every run and has no time limit,
so that no run fails by chance.

Other cases each time: ``pytest --hypothesis-profile=default``.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import settings

from tools import field_tables

settings.load_profile("ci")

LONG_FILES: Final = (
    "tests/e2e/test_walk.py",
    "tests/e2e/test_certs.py",
    "tests/e2e/test_pages.py",
    "tests/e2e/test_watch.py",
    "tests/e2e/test_live.py",
    "tests/e2e/test_every_rule.py",
    "tests/release/test_tool.py",
    "tests/e2e/test_helm.py",
    "tests/e2e/test_helm_page.py",
    "tests/e2e/test_rights.py",
    "tests/https/test_rotation.py",
    "tests/e2e/test_reports.py",
    "tests/install/test_image.py",
    "tests/e2e/never_break/test_virtual_machines.py",
    "tests/e2e/test_helm_takeover.py",
    "tests/e2e/test_manifests.py",
    "tests/e2e/test_cluster_configuration.py",
    "tests/e2e/test_chart.py",
    "tests/e2e/test_rehearsal.py",
    "tests/e2e/test_soak.py",
    "tests/https/test_restarts.py",
    "tests/cli/test_watch.py",
    "tests/e2e/test_plan_walk.py",
    "tests/e2e/test_plan_patches.py",
    "tests/e2e/test_floor.py",
    "tests/e2e/test_many_terms.py",
    "tests/e2e/test_policies.py",
    "tests/cli/test_blindness.py",
    "tests/forecasts/drain/test_many_terms.py",
    "tests/rules/test_rules_hostile.py",
    "tests/engine/test_limits.py",
    "tests/cli/test_plan_scripts.py",
    "tests/documents/test_packed_lists.py",
    "tests/cli/test_processes.py",
    "tests/cli/test_doors.py",
)
"""Files of more than 15 seconds with four processes on two processors.

A file stays with one process, because its tests share servers: a long file that began last would
leave the other processes idle. Many of these files wait, so the quick ones after them find free
processors.
"""
SHARED_SERVER: Final = "tests/e2e/"
"""Its tests come before all others, because each process keeps an API server for them until it has
run the last one.
"""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which kinds the run could not check against the definitions of other projects."""
    if not terminalreporter.config.option.keyword and (missing := field_tables.not_compared()):
        terminalreporter.write_line(missing)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while 9,000 items are made, and never again among them: that was two
    fifths of the collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        # with the garbage: to find it takes longer than all that is saved by its memory
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the end-to-end tests first, of them and of the others the long files; the rest in the
    order of their folders.
    """
    rank = {file: number for number, file in enumerate(LONG_FILES)}

    def order(item: pytest.Item) -> tuple[bool, int]:
        file = item.nodeid.partition("::")[0]
        return not file.startswith(SHARED_SERVER), rank.get(file, len(rank))

    items.sort(key=order)
