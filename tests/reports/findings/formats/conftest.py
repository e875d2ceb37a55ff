"""`virt-admit check` in one format."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.reports.findings.formats.reports import RULE
from virt_admit.cli import main


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Write files and check them all in one format;
    by default with the one rule that denies ``BOTH``.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run(form, *args, rules=(RULE,), code=None, **files):
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        select = [part for rule in rules for part in ("--select", rule)]
        command = ["check", *(args or (".",)), "-o", form, *select]
        result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
        assert result.exception is None, result.exception
        assert code in (None, result.return_value)
        return result.stdout

    return run
