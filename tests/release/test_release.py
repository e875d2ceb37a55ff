"""The steps of a release that need neither network nor image: changelog, version, digests, SBOM,
krew, signature.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from release import changelog, krew, pins, sbom, signature
from release.__main__ import not_ready
from release.prepare import prepare
from release.provenance import statement
from release.settings import version_of
from tests.paths import ROOT
from tools import generated
from virt_admit import __version__

pytestmark = pytest.mark.slow

DAY = date(2026, 12, 1)
CHANGES = "# Changelog\n\n## [Unreleased]\n### Added\n- New.\n\n## [1.0.0] - 2026-01-01\n- Old.\n"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_section_of_the_changelog():
    assert changelog.section(CHANGES, "Unreleased") == "### Added\n- New."
    assert changelog.section(CHANGES, "1.0.0") == "- Old."
    assert changelog.section(CHANGES, "1.0") == ""


def test_a_release_moves_the_entries():
    text = changelog.with_release(CHANGES, "1.1.0", DAY)
    assert changelog.section(text, "1.1.0") == "### Added\n- New."
    assert changelog.section(text, "Unreleased") == ""
    assert "## [1.1.0] - 2026-12-01\n" in text
    with pytest.raises(ValueError, match="no entries"):
        changelog.with_release(text, "1.2.0", DAY)
    with pytest.raises(ValueError, match=r"section 1\.0\.0 already"):
        changelog.with_release(CHANGES, "1.0.0", DAY)


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Return a repository with the files that name the version, which no test changes."""
    folder = tmp_path_factory.mktemp("started")
    files = git(ROOT, "ls-files", ":!:tests", ":!:charts", ":!:*.lock").splitlines()
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    git(folder, "tag", f"v{__version__}")
    return folder


@pytest.fixture
def checkout(started, tmp_path):
    """Return a clone of its own, which costs a fraction of another commit of all files."""
    git(tmp_path, "clone", "-q", "--shared", str(started), ".")
    return tmp_path


def test_a_new_version_is_written_everywhere(checkout):
    changed = prepare(checkout, "9.8.7", DAY)
    assert version_of(checkout) == "9.8.7"
    assert "ARG VERSION=9.8.7\n" in (checkout / "Dockerfile").read_text()
    assert "virt-admit@v9.8.7" in (checkout / "docs" / "ci.md").read_text()
    assert {"CHANGELOG.md", "docs/install.md"} <= set(changed)
    left = git(
        checkout, "grep", "--name-only", "--fixed-strings", __version__, "--", ":!:CHANGELOG.md"
    ).splitlines()
    assert {checkout / name for name in left} <= {
        checkout / file.relative_to(ROOT) for file in generated.files()
    }
    assert changelog.section((checkout / "CHANGELOG.md").read_text(), "9.8.7")


@pytest.mark.parametrize("version", ["1", "v1.2.3", "0.0.1", __version__])
def test_a_version_that_is_not_newer_is_refused(checkout, version):
    with pytest.raises(ValueError, match="not"):
        prepare(checkout, version, DAY)
    assert not git(checkout, "status", "--short")


def test_a_release_stops_until_digests_and_changelog_are_there(checkout):
    dockerfile = checkout / "Dockerfile"
    pins.write(checkout, lambda _, tag: tag, lambda _: f"sha256:{'b' * 64}")
    # as before the first release
    dockerfile.write_text(re.sub("@sha256:[0-9a-f]{64}", "", dockerfile.read_text()))
    lines = not_ready(checkout, "v9.8.7")
    assert f"the tag is v9.8.7, but the version is {__version__}" in lines
    assert "charts/virt-admit does not exist" in lines
    assert any("release.yaml: actions/checkout@v5 has no commit" in line for line in lines)
    assert "Dockerfile: the base image has no digest: make release-pins" in lines
    (checkout / "charts" / "virt-admit").mkdir(parents=True)
    prepare(checkout, "9.8.7", DAY)
    for _ in range(2):  # a second time they are looked up again, by the tag that is kept
        pins.write(checkout, _commit, lambda _: f"sha256:{'a' * 64}")
        assert not_ready(checkout, "v9.8.7") == []
        assert " # v5\n" in (checkout / ".github" / "workflows" / "release.yaml").read_text()
        assert (
            f"ARG PYTHON=docker.io/library/python:3.13-slim@sha256:{'a' * 64}\n"
            in dockerfile.read_text()
        )


@pytest.mark.parametrize(
    "use", ["'a/b@v1'", "a/b@main", "docker://a/b:1", "./local", f"a/b@{'c' * 39}", "a/b/c.yaml@v1"]
)
def test_an_action_without_a_commit_stops_a_release_however_it_is_written(checkout, use):
    (checkout / ".github" / "workflows" / "other.yml").write_text(
        f"jobs:\n  a: {{steps: [{{name: x, uses: {use}}}]}}\n"
    )
    assert any(
        line.startswith(f".github/workflows/other.yml: {use.strip(chr(39))} ")
        for line in pins.missing(checkout)
    )


def _commit(action: str, tag: str) -> str:
    return hashlib.sha1(f"{action}{tag}".encode()).hexdigest()


def test_the_commit_of_a_tag(checkout):
    git(checkout, "tag", "-am", "annotated", "v5")
    head = git(checkout, "rev-parse", "HEAD")
    assert git(checkout, "rev-parse", "v5") != head
    assert pins.commit_of_tag(str(checkout), "v5") == head
    assert pins.commit_of_tag(str(checkout), f"v{__version__}") == head
    with pytest.raises(ValueError, match="no tag v6"):
        pins.commit_of_tag(str(checkout), "v6")


def test_the_sbom_names_the_packages_of_an_image(tmp_path):
    packages = tmp_path / "opt/virt-admit/lib/python3.13/site-packages"
    (packages / "a_b-1.0.dist-info").mkdir(parents=True)
    (packages / "a_b-1.0.dist-info" / "METADATA").write_text(
        "Name: A_b\nVersion: 1.0\nLicense-Expression: MIT\n"
    )
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(
        "Package: libc6\nArchitecture: amd64\nVersion: 2.36-9\n\nPackage: gone\n"
    )
    found = sbom.components(tmp_path)
    assert [each.purl for each in found] == [
        "pkg:deb/debian/libc6@2.36-9?arch=amd64",
        "pkg:pypi/a-b@1.0",
    ]
    spdx, cyclonedx = sbom.spdx(found), sbom.cyclonedx(found)
    purls = [
        ref["referenceLocator"] for part in spdx["packages"][1:] for ref in part["externalRefs"]
    ]
    assert (
        purls == [part["purl"] for part in cyclonedx["components"]] == [each.purl for each in found]
    )
    assert len({part["SPDXID"] for part in spdx["packages"]}) == 3
    assert spdx["packages"][2]["licenseDeclared"] == "MIT"
    assert cyclonedx["components"][1]["licenses"] == [{"expression": "MIT"}]
    assert sbom.spdx(found) == spdx


def test_the_provenance_names_commit_and_files():
    made = statement({"a.whl": "0" * 64}, f"docker.io/library/python:3.13-slim@sha256:{'b' * 64}")
    assert made["subject"] == [{"name": "a.whl", "digest": {"sha256": "0" * 64}}]
    source, base = made["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"]["gitCommit"] == git(ROOT, "rev-parse", "HEAD")
    assert base == {
        "uri": "oci://docker.io/library/python:3.13-slim",
        "digest": {"sha256": "b" * 64},
    }


def test_the_signature_of_the_dry_run_verifies(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    form = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "key").write_bytes(key.private_bytes(*form))
    checksums = tmp_path / "checksums.txt"
    checksums.write_text("0  a\n")
    signed, public = signature.sign_with_key(checksums, tmp_path / "key")
    trusted = serialization.load_pem_public_key(public.read_bytes())
    trusted.verify(base64.b64decode(signed.read_bytes()), b"0  a\n", ec.ECDSA(hashes.SHA256()))


def test_the_krew_manifest_matches_its_archive(tmp_path):
    (tmp_path / f"virt_admit-{__version__}-py3-none-any.whl").write_bytes(b"wheel")
    krew.write(tmp_path)
    first = (tmp_path / krew.ARCHIVE).read_bytes()
    manifest = yaml.safe_load((tmp_path / krew.MANIFEST).read_text())
    (platform,) = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(first).hexdigest()
    assert platform["uri"].endswith(f"/v{__version__}/{krew.ARCHIVE}")
    assert len(manifest["spec"]["shortDescription"]) <= 50
    krew.write(tmp_path)
    assert (tmp_path / krew.ARCHIVE).read_bytes() == first
