"""`virt-admit doctor` as text and JSON."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from virt_admit.cli import doctor
from virt_admit.install.doctor import Observation, Status


class TestVerb:
    SOME = (
        Observation("trust", Status.OK, "trusted"),
        Observation("own namespace", Status.WRONG, "caught", "do this"),
        Observation("rights", Status.UNKNOWN, "forbidden"),
    )

    def test_text_names_each_observation_and_its_remedy(self):
        from click import unstyle

        assert unstyle(doctor.as_text(self.SOME)).splitlines() == [
            "ok       trust          trusted",
            "wrong    own namespace  caught",
            "                        do this",
            "unknown  rights         forbidden",
        ]

    @pytest.mark.parametrize(("code", "sound"), [(0, True), (1, False), (2, None)])
    def test_json_says_the_same(self, code, sound):
        data = json.loads(doctor.as_json(self.SOME, code))
        assert data["sound"] is sound
        assert data["observations"][1] == {
            "topic": "own namespace",
            "health": "wrong",
            "text": "caught",
            "remedy": "do this",
        }
        assert data["observations"][0]["remedy"] is None

    def test_without_a_cluster_there_is_an_error(self, tmp_path):
        run = CliRunner().invoke(doctor.command, ["--kubeconfig", str(tmp_path / "none")], standalone_mode=False)
        assert isinstance(run.exception, Exception)
        assert "no cluster is configured" in str(run.exception)
