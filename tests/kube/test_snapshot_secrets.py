"""A saved cluster tells no secrets."""

from __future__ import annotations

import json

import pytest

from virt_admit.kube.snapshots import presentable
from virt_admit.model.kubernetes.kinds import (
    CONTROLLER_REVISION,
    FAR_TEMPLATE,
    KUBEVIRT,
    NODE,
    POD,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object

NO_PROXY = {"name": "NO_PROXY", "value": "localhost,10.0.0.0/8"}


def in_pod(proxy):
    return {"spec": {"containers": [{"env": [{"name": "https_proxy", "value": proxy}, NO_PROXY]}]}}


VOLUMES = [
    {
        "name": "init",
        "cloudInitNoCloud": {
            "userData": "hunter2",
            "networkData": "hunter2",
            "secretRef": {"name": "s"},
        },
    },
    {
        "name": "drive",
        "cloudInitConfigDrive": {"userDataBase64": "hunter2", "networkDataBase64": "hunter2"},
    },
    {"name": "answers", "sysprep": {"secret": {"name": "hunter2"}}},
]
MACHINE = {
    "volumes": VOLUMES,
    "accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "hunter2"}}}}],
}


@pytest.mark.parametrize(
    ("kind", "fields", "remains"),
    [
        (
            VM,
            {"spec": {"template": {"spec": MACHINE}}},
            {
                "spec": {
                    "template": {
                        "spec": {
                            "volumes": [
                                {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "s"}}},
                                {"name": "drive", "cloudInitConfigDrive": {}},
                                {"name": "answers", "sysprep": {}},
                            ]
                        }
                    }
                }
            },
        ),
        (VMI, {"spec": {"accessCredentials": []}}, {"spec": {}}),
        (
            FAR_TEMPLATE,
            {
                "spec": {
                    "template": {
                        "spec": {
                            "sharedparameters": {
                                "--password": "hunter2",
                                "--action": "off",
                                "--plug": "n-{{.NodeName}}",
                            },
                            "nodeparameters": {
                                "--ip": {"one": "hunter2"},
                                "action": {"one": "reboot"},
                                "--x": {"one": 5},
                            },
                        }
                    }
                }
            },
            {
                "spec": {
                    "template": {
                        "spec": {
                            "sharedparameters": {
                                "--password": "removed",
                                "--action": "off",
                                "--plug": "removed{{.NodeName}}",
                            },
                            "nodeparameters": {
                                "--ip": {"one": "removed"},
                                "action": {"one": "reboot"},
                                "--x": {"one": 5},
                            },
                        }
                    }
                }
            },
        ),
        (
            VM,
            {
                "spec": {
                    "dataVolumeTemplates": [
                        {"spec": {"source": {"http": {"url": "https://me:hunter2@host/disk"}}}}
                    ]
                }
            },
            {
                "spec": {
                    "dataVolumeTemplates": [
                        {"spec": {"source": {"http": {"url": "https://host/disk"}}}}
                    ]
                }
            },
        ),
        (
            VM,
            {"spec": {"source": {"http": {"extraHeaders": ["Authorization: hunter2"]}}}},
            {"spec": {"source": {"http": {}}}},
        ),
        (
            KUBEVIRT,
            {"spec": {"x": [{"env": [{"name": "TOKEN", "value": "hunter2"}, "odd"]}]}},
            {"spec": {"x": [{"env": [{"name": "TOKEN"}, "odd"]}]}},
        ),
        (POD, in_pod("http://u:p@x"), in_pod("…")),
        (POD, in_pod("u:p@x:3128"), in_pod("…")),
        (POD, in_pod(""), {"spec": {"containers": [{"env": [{"name": "https_proxy"}, NO_PROXY]}]}}),
        (
            POD,
            {"spec": {"containers": [{"env": [{"name": "no_proxy", "value": "u:p@x"}]}]}},
            {"spec": {"containers": [{"env": [{"name": "no_proxy"}]}]}},
        ),
        (
            CONTROLLER_REVISION,
            {"data": {"spec": {"template": {"args": "hunter2"}}}},
            {"data": {"spec": {}}},
        ),
        (
            NODE,
            {"status": {"env": "text", "sysprep": None}},
            {"status": {"env": "text", "sysprep": None}},
        ),
    ],
)
def test_secrets_stay_in_the_cluster(kind, fields, remains):
    names = {"apiVersion": kind.api_version, "kind": kind.kind}
    obj = Object({**names, "metadata": {"name": "x"}, **fields})
    before = json.dumps(obj.data)

    assert presentable(obj) == {**names, "metadata": {"name": "x"}, **remains}
    assert json.dumps(obj.data) == before


def test_annotations_that_tell_too_much():
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": "hunter2",
        "kubevirt.io/ignitiondata": "hunter2",
        "mine": "1",
    }
    metadata = {"name": "x", "annotations": annotations, "managedFields": [{"manager": "hunter2"}]}
    shown = presentable(
        Object({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata})
    )
    assert shown["metadata"] == {"name": "x", "annotations": {"mine": "1"}}
