"""What an image contains, as SPDX 2.3 and as CycloneDX 1.6: Python packages and Debian packages."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from release.settings import EPOCH, REPOSITORY, VERSION

Json = dict[str, Any]
TIME = datetime.fromtimestamp(EPOCH, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, order=True)
class Component:
    """A package. The purl names it in every ecosystem."""

    purl: str
    name: str
    version: str
    license: str = ""
    """An SPDX expression; empty if the package does not declare one."""


def components(root: Path) -> list[Component]:
    """Return the packages below the root of an image."""
    return sorted({*_python(root), *_debian(root / "var" / "lib" / "dpkg" / "status")})


def _python(root: Path) -> Iterator[Component]:
    folders = [str(path) for path in root.glob("opt/virt-admit/lib/python3*/site-packages")]
    for package in distributions(path=folders):
        name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
        declared = str(package.metadata.json.get("license_expression", ""))
        yield Component(f"pkg:pypi/{name}@{package.version}", name, package.version, declared)


def _debian(status: Path) -> Iterator[Component]:
    for entry in status.read_text().split("\n\n") if status.is_file() else ():
        fields = dict(re.findall(r"^(Package|Version|Architecture): (.*)$", entry, re.MULTILINE))
        if "Version" in fields:
            purl = (
                f"pkg:deb/debian/{fields['Package']}@{fields['Version']}?arch="
                f"{fields['Architecture']}"
            )
            yield Component(purl, fields["Package"], fields["Version"])


def spdx(packages: Iterable[Component]) -> Json:
    """Return an SPDX document of an image with these packages."""
    image: Json = {
        "SPDXID": "SPDXRef-image",
        "name": "virt-admit",
        "versionInfo": VERSION,
        "downloadLocation": REPOSITORY,
        "filesAnalyzed": False,
        "primaryPackagePurpose": "CONTAINER",
    }
    parts = [
        {
            "SPDXID": f"SPDXRef-{number}",
            "name": package.name,
            "versionInfo": package.version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseDeclared": package.license or "NOASSERTION",
            "externalRefs": [
                {
                    "referenceCategory": "PACKAGE-MANAGER",
                    "referenceType": "purl",
                    "referenceLocator": package.purl,
                }
            ],
        }
        for number, package in enumerate(packages)
    ]
    contains = [_relation("SPDXRef-image", "CONTAINS", part["SPDXID"]) for part in parts]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"virt-admit-{VERSION}",
        "documentNamespace": f"{REPOSITORY}/sbom/{_identity(packages)}",
        "creationInfo": {"created": TIME, "creators": [f"Tool: virt-admit-release-{VERSION}"]},
        "packages": [image, *parts],
        "relationships": [_relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"), *contains],
    }


def _relation(source: str, kind: str, target: Any) -> Json:
    return {"spdxElementId": source, "relationshipType": kind, "relatedSpdxElement": target}


def cyclonedx(packages: Iterable[Component]) -> Json:
    """Return a CycloneDX document of an image with these packages."""
    parts = [
        {
            "type": "library",
            "bom-ref": package.purl,
            "name": package.name,
            "version": package.version,
        }
        | ({"licenses": [{"expression": package.license}]} if package.license else {})
        | {"purl": package.purl}
        for package in packages
    ]
    image = {"type": "container", "bom-ref": "image", "name": "virt-admit", "version": VERSION}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{_identity(packages)}",
        "version": 1,
        "metadata": {"timestamp": TIME, "component": image},
        "components": parts,
        "dependencies": [{"ref": "image", "dependsOn": [package.purl for package in packages]}],
    }


def _identity(packages: Iterable[Component]) -> uuid.UUID:
    """Return the same UUID for the same packages, so that the same commit gives the same bytes."""
    return uuid.uuid5(
        uuid.NAMESPACE_URL, "\n".join([REPOSITORY, *(package.purl for package in packages)])
    )
