"""Directories with and without certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certs.stores.generations import NOTES, OLD
from virt_admit_certs.stores.directory import Directory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "certs"


@pytest.fixture
def root(path: Path) -> Path:
    """A directory with OLD in it."""
    assert Directory(path).save(OLD, NOTES, None)
    return path
