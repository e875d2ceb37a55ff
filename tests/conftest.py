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
    "tests/e2e/test_pages.py",
    "tests/e2e/test_certs.py",
    "tests/e2e/test_walk.py",
    "tests/e2e/test_watch.py",
    "tests/e2e/test_live.py",
    "tests/e2e/test_helm.py",
    "tests/e2e/never_break/test_virtual_machines.py",
    "tests/e2e/test_manifests.py",
    "tests/e2e/test_plan_patches.py",
    "tests/e2e/test_rights.py",
    "tests/e2e/test_rehearsal.py",
    "tests/e2e/test_reports.py",
    "tests/e2e/test_floor.py",
    "tests/e2e/test_helm_page.py",
    "tests/e2e/test_every_rule.py",
    "tests/e2e/test_cluster_configuration.py",
    "tests/e2e/test_plan_walk.py",
    "tests/e2e/test_apply.py",
    "tests/e2e/test_chart.py",
    "tests/e2e/test_scheduler_model.py",
    "tests/incidents_platform/test_live.py",
    "tests/release/test_tool.py",
    "tests/browser/test_browser.py",
    "tests/rules/test_rules_hostile.py",
    "tests/cli/test_blindness.py",
    "tests/incidents/test_virtual_machines.py",
    "tests/https/test_rotation.py",
    "tests/install/test_image.py",
    "tests/https/test_restarts.py",
    "tests/healthy/test_healthy.py",
    "tests/cli/test_odd_inputs.py",
    "tests/documents/test_packed_lists.py",
    "tests/cli/test_plan_scripts.py",
    "tests/forecasts/drain/test_many_terms.py",
    "tests/cli/test_drain_follow.py",
    "tests/cli/test_watch.py",
    "tests/reports/test_incremental.py",
    "tests/fuzz/test_fuzz.py",
    "tests/engine/test_limits.py",
    "tests/cli/test_doors.py",
    "tests/cli/test_upgrade_layers.py",
    "tests/release/test_release.py",
)
"""Files of more than 20 seconds with four processes on two processors, the longest of each kind
first.

A file stays with one process, because its tests share servers: a long file that began last would
leave the other processes idle.
"""
END_TO_END: Final = "tests/e2e/"
"""Its tests wait half of the time, the others compute: in turns they keep the processors busy."""


COLLECT_EVERY: Final = 50_000
"""New objects after which Python looks for garbage. Its default is 700, and takes a twentieth of
the tests that compute.
"""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which kinds the run could not check against the definitions of other projects."""
    if not terminalreporter.config.option.keyword and (missing := field_tables.not_compared()):
        terminalreporter.write_line(missing)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while thousands of items are made, and never again among them: that was
    two fifths of the collection. Afterwards look for it as seldom as a command does.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        # with the garbage: to find it takes longer than all that is saved by its memory
        gc.freeze()
        gc.set_threshold(COLLECT_EVERY)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long files first, and the files of the end-to-end tests in turns with the others."""
    long = {file: number for number, file in enumerate(LONG_FILES)}
    files = sorted(
        dict.fromkeys(_file(item) for item in items), key=lambda file: long.get(file, len(long))
    )
    kinds = [
        [file for file in files if file.startswith(END_TO_END) is waits] for waits in (True, False)
    ]
    turn = {file: number for kind in kinds for number, file in enumerate(kind)}
    items.sort(key=lambda item: (turn[_file(item)], not _file(item).startswith(END_TO_END)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
