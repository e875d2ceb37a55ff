"""The parsers that the reader must be right with."""

from __future__ import annotations

import pytest
import yaml

from virt_admit.documents import yaml_reader


@pytest.fixture(params=["libyaml", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of PyYAML's parsers, one after the other."""
    if request.param == "python":
        monkeypatch.setattr(yaml_reader, "PARSER", yaml_reader._PythonParser)
    else:
        assert yaml.__with_libyaml__, "PyYAML was installed without libyaml"
