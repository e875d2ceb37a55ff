"""What the flags and variables of `virt-admit serve` mean,
and which of them contradict each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from virt_admit.cli.commands import serve as verb
from virt_admit.cli.commands.serve import IN_CLUSTER, command
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.serving import gunicorn_app
from virt_admit.serving.certificates import schedule_of
from virt_admit.serving.settings import Certs, Settings
from virt_admit_certs.errors import error_text
from virt_admit_certs.rotation_events import RotationEvents
from virt_admit_certs.schedule import RotationSettingsError, show_duration

SERVICE = ("virt-admit-webhook.virt-admit.svc", "virt-admit-webhook.virt-admit.svc.cluster.local")
ELSEWHERE = tuple(name.replace(".virt-admit.", ".shop.") for name in SERVICE)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
IN_A_POD = {IN_CLUSTER: "10.0.0.1"}


@pytest.fixture
def settings(monkeypatch):
    """What would be served with, or the message of a refusal."""

    def run(*flags: object, environ: dict[str, str] | None = None) -> Settings | str:
        served: list[Settings] = []
        monkeypatch.setattr(gunicorn_app, "serve", lambda chosen: served.append(chosen) or 0)
        monkeypatch.setattr(verb.logs, "configure", lambda *_: None)
        result = CliRunner().invoke(
            command, [*map(str, flags)], env=environ or {}, standalone_mode=False
        )
        return served[0] if served else result.exception.format_message()

    return run


@pytest.mark.parametrize(
    ("flags", "environ", "certs", "names"),
    [
        (["--certs", "d"], {}, Certs(directory=Path("d")), (*SERVICE, *LOOPBACK)),
        (["--certs", "d"], IN_A_POD, Certs(directory=Path("d")), (*SERVICE, *LOOPBACK)),
        ([], IN_A_POD, Certs(secret="virt-admit/virt-admit-certs"), SERVICE),
        (["--certs-secret", "shop/s"], {}, Certs(secret="shop/s"), ELSEWHERE),
        ([], {"VIRT_ADMIT_CERTS_SECRET": "shop/s"}, Certs(secret="shop/s"), ELSEWHERE),
        (["--certs-external", "d"], IN_A_POD, Certs(external=Path("d")), SERVICE),
        (["--certs-external-secret", "shop/s"], {}, Certs(external_secret="shop/s"), ELSEWHERE),
        (
            ["--certs-external", "d", "--certs-external-ca"],
            {},
            Certs(external=Path("d"), external_ca=True),
            SERVICE,
        ),
        (
            [
                "--certs",
                "d",
                "--cert-name",
                "a.example",
                "--cert-name",
                "192.0.2.1",
                "--certs-key",
                "p384",
            ],
            {},
            Certs(directory=Path("d"), schedule={"key": "p384"}),
            (*SERVICE, *LOOPBACK, "a.example", "192.0.2.1"),
        ),
        (
            ["--certs-profile", "yearly"],
            {**IN_A_POD, "VIRT_ADMIT_CERTS_SERVING_DURATION": "800d"},
            Certs(
                secret="virt-admit/virt-admit-certs",
                schedule={"profile": "yearly", "serving-duration": "800d"},
            ),
            SERVICE,
        ),
    ],
)
def test_where_certificates_are_and_for_which_names(settings, flags, environ, certs, names):
    chosen = settings(*flags, environ=environ)

    assert chosen.certs == certs
    assert chosen.cert_names == names


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "no certificate store is named: add --certs DIR"),
        (
            ["--certs", "d", "--certs-secret", "a/b"],
            "--certs and --certs-secret exclude each other",
        ),
        (
            ["--certs-external", "d", "--certs-external-secret", "a/b"],
            "--certs-external and --certs-external-secret exclude each other",
        ),
        (["--certs", "d", "--certs-external-ca"], "--certs-external-ca needs --certs-external or"),
        (
            ["--certs-secret", "a/b", "--certs-external-ca"],
            "--certs-external-ca needs --certs-external or",
        ),
        *(
            ([flag, text], f"{flag} {text} is not NAMESPACE/NAME")
            for flag in ("--certs-secret", "--certs-external-secret")
            for text in ("a", "a/", "/a", "a/b/", "a//b", "a/b/c")
        ),
        (["--certs", "d", "--bind", "off"], "--bind cannot be off"),
        (["--certs", "d", "--bind", "nowhere"], "'nowhere' is not HOST:PORT"),
        (["--certs", "d", "--ops-bind", ":99999"], "':99999' is not HOST:PORT"),
        (["--certs", "d", "--client-name", "a"], "--client-name needs --client-ca"),
        (
            ["--certs", "d", "--cluster", "no-such-file"],
            "--cluster no-such-file: no such file or folder",
        ),
        (["--certs", "d", "--cluster", ".", "--live"], "--cluster and --live exclude each other"),
        (["--certs", "d", "--policy", "no-such-file"], "--policy no-such-file: no such file"),
        (
            ["--certs", "d", "--certs-profile", "weekly"],
            "profile is weekly; it must be one of daily, ",
        ),
        (
            ["--certs", "d", "--certs-serving-duration", "soon"],
            "serving-duration: 'soon' is not a duration",
        ),
        (
            ["--certs", "d", "--cert-name", "a b"],
            "cert-name: 'a b' is neither a DNS name nor an IP address",
        ),
    ],
)
def test_refused(settings, flags, said):
    assert settings(*flags).startswith(said)


def hyperconverged(version: str = "v1", **groups: object) -> Object:
    block = {"certConfig": groups}
    spec = {"security": block} if version == "v1" else block
    metadata = {"name": "kubevirt-hyperconverged", "namespace": "kubevirt-hyperconverged"}
    return Object(
        {
            "apiVersion": f"hco.kubevirt.io/{version}",
            "kind": "HyperConverged",
            "metadata": metadata,
            "spec": spec,
        }
    )


CA, SERVER = (
    {"duration": "96h0m0s", "renewBefore": "30h"},
    {"duration": "10h", "renewBefore": "5h30m"},
)


@pytest.mark.parametrize(
    ("cluster", "further", "expected"),
    [
        (NOTHING, {}, ("24h", "12h", "48h", "24h")),
        (Snapshot(complete=["*"]), {}, ("24h", "12h", "48h", "24h")),
        (Snapshot([hyperconverged()]), {}, ("24h", "12h", "48h", "24h")),
        (Snapshot([hyperconverged(ca=CA, server=SERVER)]), {}, ("10h", "5h30m", "96h", "30h")),
        (
            Snapshot([hyperconverged("v1beta1", ca=CA, server=SERVER)]),
            {},
            ("10h", "5h30m", "96h", "30h"),
        ),
        (Snapshot([hyperconverged(server=SERVER)]), {}, ("10h", "5h30m", "48h", "24h")),
        (
            Snapshot([hyperconverged(ca={"duration": "soon"}, server=SERVER)]),
            {},
            ("10h", "5h30m", "48h", "24h"),
        ),
        (
            Snapshot([hyperconverged(ca=CA)]),
            {"signer-duration": "720h"},
            ("24h", "12h", "720h", "30h"),
        ),
    ],
)
def test_the_schedule_of_the_cluster(cluster, further, expected):
    settings = Settings(
        certs=Certs(directory=Path("d"), schedule={"profile": "cluster", **further})
    )

    schedule = schedule_of(settings, cluster).schedule

    assert tuple(map(show_duration, schedule.values())) == expected


def test_a_schedule_of_the_cluster_that_cannot_be_is_refused():
    settings = Settings(certs=Certs(directory=Path("d"), schedule={"profile": "cluster"}))
    brief = {"duration": "48h", "renewBefore": "30m"}

    with pytest.raises(RotationSettingsError, match="signer-renew-before is 30m"):
        schedule_of(settings, Snapshot([hyperconverged(ca=brief)]))


def test_other_schedules_do_not_look():
    settings = Settings(certs=Certs(directory=Path("d"), schedule={"profile": "hco"}))

    assert schedule_of(settings, Snapshot([hyperconverged(ca=CA)])) == schedule_of(settings)


def test_where_it_listens_and_what_it_looks_up(settings, tmp_path):
    plain = settings("--certs", "d")
    assert (plain.bind, plain.ops_bind, plain.live, plain.workers) == (
        "0.0.0.0:8443",
        "0.0.0.0:8080",
        False,
        1,
    )
    assert settings(environ=IN_A_POD).live
    assert not settings("--cluster", tmp_path, environ=IN_A_POD).live
    assert settings("--certs", "d", "--ops-bind", "off", "--bind", "[::]:8443").ops_bind == "off"


def test_a_file_that_cannot_be_read_is_named_without_the_errno(settings, tmp_path):
    unreadable = tmp_path / "policy.yaml"
    unreadable.symlink_to("/proc/self/mem")  # a regular file of which no byte can be read
    assert settings("--certs", tmp_path, "--policy", unreadable) == "Input/output error"


def test_heartbeat_files_need_no_writable_shared_memory(tmp_path, monkeypatch):
    assert gunicorn_app.heartbeat_folder(str(tmp_path)) == str(tmp_path)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert gunicorn_app.heartbeat_folder(str(tmp_path)) is None
    assert gunicorn_app.heartbeat_folder(str(tmp_path / "none")) is None


def test_a_missing_file_of_a_running_server_has_no_errno():
    assert error_text(FileNotFoundError(2, "No such file or directory", "ca.crt")) == (
        "ca.crt: No such file or directory"
    )
    assert error_text(ValueError("no")) == "no"


def test_a_failed_round_of_certificates_names_the_file_without_the_errno(caplog):
    events = RotationEvents(lambda *_: None)
    events.error(FileNotFoundError(2, "No such file or directory", "/etc/certs"))
    (record,) = caplog.records
    assert (record.message, record.error) == (
        "certificate round failed",
        "/etc/certs: No such file or directory",
    )
