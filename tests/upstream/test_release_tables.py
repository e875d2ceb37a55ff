"""The tables of releases against the source code of the releases,
as the Go module proxy serves it.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import cpu_models, release_tables
from virt_admit.forecasts.placement.common_model import features
from virt_admit.model import releases

MODULES = {"1.6": "v1.6.0", "1.7": "v1.7.0", "1.8": "v1.8.0"}


def source(tag):
    """Return the folder of KubeVirt's module at a tag; Go downloads it once into its cache."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).is_file():
        pytest.skip("needs Go to download KubeVirt's source code")
    command = [go, "mod", "download", "-json", f"kubevirt.io/kubevirt@{tag}"]
    done = subprocess.run(
        command,
        check=True,
        text=True,
        capture_output=True,
        env={**os.environ, "GOFLAGS": "-mod=mod"},
    )
    return Path(json.loads(done.stdout)["Dir"])


def reader(folder):
    return lambda path: (folder / path).read_text() if (folder / path).is_file() else ""


@pytest.mark.parametrize(("release", "tag"), MODULES.items())
def test_table_agrees_with_the_source_code(release, tag):
    found = release_tables.kubevirt(reader(source(tag)))

    assert len(found["gates"]) > 50
    assert releases.about(releases.KUBEVIRT, release) == found


@pytest.mark.parametrize(("release", "tag"), MODULES.items())
def test_removed_bindings_are_those_of_the_validator(release, tag):
    folder = source(tag) / "pkg" / "network" / "admitter"
    code = "".join(
        file.read_text() for file in folder.glob("*.go") if not file.name.endswith("_test.go")
    )

    for word in ("DeprecatedSlirp", "DeprecatedPasst", "DeprecatedMacvtap"):
        assert word in code, f"{release} admits {word}"


def test_removed_fields_are_those_that_the_schemas_lost():
    found = release_tables.removed_fields(
        {release: reader(source(tag)) for release, tag in MODULES.items()}
    )

    table = releases.table(releases.KUBEVIRT)["removed_fields"]
    assert found == {
        release: kinds for release, kinds in table.items() if release in list(MODULES)[1:]
    }


def test_cpu_models_are_those_of_the_cpu_map_that_kubevirt_tests_with():
    folder = source("v1.8.0") / "pkg" / "virt-handler" / "node-labeller" / "testdata" / "cpu_map"
    found = cpu_models.models(folder)

    ours = json.loads(cpu_models.FILE.read_text())
    assert len(found) >= 3
    for name, (vendor, theirs) in found.items():
        assert theirs <= features(name), name
        assert ours[name]["vendor"] == vendor
