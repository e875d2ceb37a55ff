"""What the fuzzers start from: the cases of all rules, the examples, recorded reviews,
the policies that are shipped.
"""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any, NamedTuple

import yaml

from tests.paths import ROOT
from tests.rule_cases import rule_cases
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy import parser

Json = dict[str, Any]


class Scene(NamedTuple):
    """An object that a rule judges, the object before the change,
    and the objects of the cluster.
    """

    obj: Json
    old: Json | None
    cluster: list[Json]


@cache
def scenes() -> tuple[Scene, ...]:
    """Every case of every rule."""
    cases = json.loads(
        json.dumps([case for found in rule_cases().values() for case in found], default=str)
    )
    return tuple(
        Scene(case["object"], case.get("old"), case.get("cluster", []))
        for case in cases
        if isinstance(case["object"], dict) and kinds.of(Object(case["object"])) is not None
    )


@cache
def objects() -> tuple[Json, ...]:
    """Every object of every case."""
    return tuple(
        each for scene in scenes() for each in (scene.obj, *scene.cluster) if isinstance(each, dict)
    )


@cache
def manifests() -> tuple[bytes, ...]:
    """The examples, and every tenth case as YAML and as JSON."""
    examples = [file.read_bytes() for file in sorted((ROOT / "examples").glob("*.yaml"))]
    some = [scene.obj for scene in scenes()[::10]]
    as_yaml = [
        yaml.dump(each, sort_keys=False, allow_unicode=True).encode("utf-8", "replace")
        for each in some
    ]
    return (*examples, *as_yaml, *(json.dumps(each, indent=1).encode() for each in some))


@cache
def policies() -> tuple[bytes, ...]:
    return tuple(parser.shipped(name) for name in ("default", "audit", "strict"))


@cache
def reviews() -> tuple[bytes, ...]:
    """What a real kube-apiserver sent."""
    files = sorted((ROOT / "tests/contract").glob("*.json"))
    found = [json.loads(file.read_text()) for file in files]
    return tuple(json.dumps(each.get("review", each)).encode() for each in found)


def scene(chance: random.Random) -> Scene:
    return chance.choice(scenes())
