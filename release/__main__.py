"""`python -m release STEP`, called by `make release-STEP` here and in
.github/workflows/release.yaml.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from release import changelog, image, krew, pins, signature
from release.prepare import prepare
from release.provenance import statement
from release.settings import DIST, EPOCH, REGISTRY, ROOT, VERSION, run, version_of
from release.tools import tool

CHECKSUMS = DIST / "checksums.txt"
CHART = "charts/virt-admit"
DRY_RUN = bool(os.environ.get("RELEASE_DRY_RUN"))


def check() -> None:
    """Refuse a release that is not ready. The dry run says what is missing, and goes on."""
    problems = not_ready(ROOT, os.environ.get("GITHUB_REF_NAME", f"v{VERSION}"))
    if problems and not DRY_RUN:
        sys.exit("\n".join(problems))
    print("\n".join(f"a release would stop here: {problem}" for problem in problems))


def not_ready(root: Path, tag: str) -> list[str]:
    """Return a line for each problem: tag, section of the changelog, chart, digests."""
    version = version_of(root)
    problems = [] if tag == f"v{version}" else [f"the tag is {tag}, but the version is {version}"]
    if not changelog.section((root / "CHANGELOG.md").read_text(), version):
        problems.append(
            f"CHANGELOG.md has no section {version}: make release-prepare NEW={version}"
        )
    if not (root / CHART).is_dir():
        problems.append(f"{CHART} does not exist")
    return [*problems, *(f"{line}: make release-pins" for line in pins.missing(root))]


def login() -> None:
    """Store the job's token for the registry where buildah, helm, crane and cosign look for it."""
    if REGISTRY:
        user, token = os.environ["GITHUB_ACTOR"], os.environ["GH_TOKEN"]
        command = [
            str(tool("crane")),
            "auth",
            "login",
            REGISTRY.partition("/")[0],
            "-u",
            user,
            "--password-stdin",
        ]
        subprocess.run(command, input=token, text=True, check=True)  # noqa: S603


def files() -> None:
    """Build wheel, source archive, and what krew needs."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(parents=True)
    build = (sys.executable, "-m", "hatchling", "build", "--directory", DIST)
    run(*build, SOURCE_DATE_EPOCH=str(EPOCH))
    (DIST / "python").mkdir()  # what goes to the package index
    for path in (*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")):
        shutil.copy(path, DIST / "python")
    krew.write(DIST)


def chart() -> None:
    """Package the chart, and push it if there is a registry."""
    run(
        tool("helm3"),
        "package",
        ROOT / CHART,
        "--destination",
        DIST,
        "--version",
        VERSION,
        "--app-version",
        VERSION,
    )
    if REGISTRY:
        run(tool("helm3"), "push", DIST / f"virt-admit-{VERSION}.tgz", f"oci://{REGISTRY}/charts")
        (DIST / "chart.digest").write_text(
            run(tool("crane"), "digest", f"{REGISTRY}/charts/virt-admit:{VERSION}")
        )


def attest() -> None:
    """Write the provenance of all files and images, and then the checksums of all files."""
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _files()}
    for path in DIST.glob("*.digest"):
        digests[f"{REGISTRY}/{path.stem}"] = path.read_text().strip().removeprefix("sha256:")
    base = pins.BASE.search((ROOT / "Dockerfile").read_text())
    provenance = DIST / f"virt-admit-{VERSION}.provenance.json"
    provenance.write_text(
        json.dumps(
            statement(digests, base[0].removeprefix("ARG PYTHON=") if base else ""), indent=1
        )
    )
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in _files()]
    CHECKSUMS.write_text("".join(lines))


def _files() -> list[Path]:
    found = (path for path in DIST.iterdir() if path.is_file())
    return sorted(path for path in found if path.suffix != ".digest" and path.stem != "checksums")


def sign() -> None:
    """Sign the checksums, and image and chart in the registry."""
    for path in signature.sign(CHECKSUMS):
        print(path.relative_to(DIST))


def publish() -> None:
    """Create the release on GitHub with the section of the changelog and all files."""
    text = changelog.section(
        (ROOT / "CHANGELOG.md").read_text(), "Unreleased" if DRY_RUN else VERSION
    )
    notes = ROOT / "build" / "notes.md"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text(f"{text}\n")
    assets = [*_files(), *sorted(DIST.glob("checksums.*"))]
    command = (
        "gh",
        "release",
        "create",
        f"v{VERSION}",
        "--verify-tag",
        "--notes-file",
        notes,
        *assets,
    )
    print(*command) if DRY_RUN else print(run(*command))


def main(step: str, version: str = "") -> None:
    """Run one step."""
    if step == "prepare":
        print("\n".join(prepare(ROOT, version, datetime.now(UTC).date())))
    elif step == "pins":
        pins.write(ROOT, pins.commit_of, pins.digest_of)
    elif step == "image":
        print(image.build())
    else:
        STEPS[step]()


STEPS = {
    function.__name__: function for function in (check, login, files, chart, attest, sign, publish)
}

if __name__ == "__main__":
    main(*sys.argv[1:])
