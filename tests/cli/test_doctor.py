"""`virt-admit doctor` as text and JSON."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.apiserver.control_plane import free_port
from virt_admit.cli.commands import doctor
from virt_admit.install.observations import CheckObservation, Status


class TestVerb:
    SOME = (
        CheckObservation("trust", Status.OK, "trusted"),
        CheckObservation("own namespace", Status.WRONG, "caught", "do this"),
        CheckObservation("rights", Status.UNKNOWN, "forbidden"),
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
        run = CliRunner().invoke(
            doctor.command, ["--kubeconfig", str(tmp_path / "none")], standalone_mode=False
        )
        assert isinstance(run.exception, Exception)
        assert (
            str(run.exception)
            == f"no cluster is configured: {tmp_path / 'none'}: No such file or directory"
        )

    def test_an_unreadable_kubeconfig_is_named_without_the_number_of_the_error(self, tmp_path):
        run = CliRunner().invoke(
            doctor.command, ["--kubeconfig", str(tmp_path)], standalone_mode=False
        )
        assert str(run.exception) == f"no cluster is configured: {tmp_path}: Is a directory"

    def test_a_refused_connection_is_named_without_the_number_of_the_error(self):
        assert doctor.connect(f"https://127.0.0.1:{free_port()}", "").endswith(
            ": Connection refused"
        )
