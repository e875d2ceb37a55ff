"""Objects of KubeVirt's operators that are stored in the form of another API version, so that
their operator cannot decode them and ends.

The API server converts an object by the webhook of its CustomResourceDefinition. While that setting
is gone, as when OLM replaces the definition, what is written as one version is stored as another
one. Sources: kubevirt/hyperconverged-cluster-operator#4549, #4557; encoding/json of Go
(UnmarshalTypeError); kubernetes/apimachinery:pkg/runtime/error.go#strictDecodingError.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from virt_admit.model import unknown_fields
from virt_admit.model.commands import about, typed
from virt_admit.model.evidence import container_states, unready_pods
from virt_admit.model.kubernetes import clock, json_codec
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT, POD, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.workloads import container_statuses
from virt_admit.model.messages import names

_OPERATORS: Final[Mapping[str, Kind]] = {
    "hco-operator": HCO,
    "virt-operator": KUBEVIRT,
    "cdi-operator": CDI,
}
"""What the pods of each Deployment decode as they start."""
READS: Final[Reads] = union(
    unready_pods.READS, {POD: container_states.FIELDS}, dict.fromkeys(_OPERATORS.values(), ())
)
_TYPE: Final = re.compile(
    r"cannot unmarshal (object|array|string|number|bool)(?: \S{1,80})? into Go struct field "
    r"([\w.]{1,200}) of type (\S{1,120})"
)
_UNKNOWN: Final = re.compile(
    r"(?:strict decoding error: .{0,400}?|json: )"
    r"unknown field \\?\"((?:[\w-]{1,63}\.){0,9}[\w-]{1,63})\\?\""
)
"""An error of a decoder; a warning of the API server has the last words alone."""
_WARNED: Final = "warnings.go"
"""Where client-go logs what the API server warns of, and goes on
(kubernetes/client-go:rest/warnings.go#WarningLogger).
"""
_LIST, _OBJECT = "a list", "an object"
_WORDS: Final = {"object": _OBJECT, "array": _LIST, "string": "a text"} | {
    "number": "a number",
    "bool": "true or false",
}
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_DEEPEST: Final = 8


class Undecodable(NamedTuple):
    """An object with a field that its operator cannot decode."""

    obj: Object
    kind: Kind
    path: tuple[str, ...]
    has: str
    wanted: str
    """``a list``; empty: its version has no such field."""
    written: str
    """`` (written as GROUP/VERSION by MANAGER 3 h ago)``; empty: not known."""

    @property
    def words(self) -> str:
        """Return which field is wrong, as a clause."""
        version, field = self.obj.api_version, ".".join(self.path)
        differs = f"where {version} has {self.wanted}" if self.wanted else f"unknown to {version}"
        title = f"{self.kind.kind} {self.obj.full_name}"
        it = f"{title} has {self.has} in {field}, {differs}{self.written}"
        return f"{it}, which its operator cannot decode"

    @property
    def remedy(self) -> str:
        """Return what lets the operator start, with what else may be lost."""
        field, version = ".".join(self.path), self.obj.api_version
        form = f"Write {field} of {self.kind.kind} {self.obj.name} as {self.wanted}, or remove it"
        words = f"{form if self.wanted else f'Remove {field}'}, in {version}"
        lost = sorted(_applied(self.obj).keys() - self.obj["spec"].map.keys())
        has = f", which its annotation {_APPLIED} has in the form of another version"
        more = f"then set again what it lost ({names(lost, 80)}){has}" if lost else ""
        return typed(words, about("edit", self.obj, self.kind), more)


def of_deployment(deployment: Object, cluster: Cluster) -> Undecodable | None:
    """Return what a pod of a Deployment cannot decode; None: nothing is known."""
    found = (of_pod(pod, cluster) for pod in unready_pods.of(deployment, cluster))
    return next(filter(None, found), None)


def of_pod(pod: Object, cluster: Cluster) -> Undecodable | None:
    """Return the object that a pod which ends again and again cannot decode; None: none is known.

    A pod says it as it ends, or its own kind of object has a form that no release of its version
    has. The API server admits no such object, so that it can only be stored by a version alone.
    """
    ends = [end for _, end in container_states.terminations(pod) if end["exitCode"].integer]
    if not ends or not any(map(_is_down, container_statuses(pod))):
        return None
    said = (line for end in ends for line in (end["message"].text or "").splitlines())
    errors = "\n".join(line for line in said if _WARNED not in line)
    return next((each for each in (*_said(errors, pod, cluster), *_own(pod, cluster))), None)


def _is_down(status: Any) -> bool:
    return not status["ready"].boolean and not status.at("state", "running").present


def _own(pod: Object, cluster: Cluster) -> Iterator[Undecodable]:
    """Yield what has another form than each known release of its version."""
    for obj, kind in _decoded(pod, cluster):
        for path, (has, wanted) in _differing(obj, kind).items():
            yield Undecodable(obj, kind, path, has, wanted, _written(obj, cluster))


def _decoded(pod: Object, cluster: Cluster) -> Iterator[tuple[Object, Kind]]:
    """Yield the objects that the operator in a pod decodes as it starts."""
    for operator, kind in _OPERATORS.items():
        if pod.name.startswith(f"{operator}-"):
            known = cluster.known(kind, pod.namespace if kind.namespaced else "")
            yield from ((obj, kind) for obj in known)


def _said(said: str, pod: Object, cluster: Cluster) -> Iterator[Undecodable]:
    """Yield what has the field that a message names, with the JSON type that it names, or that no
    known release of its version has.
    """
    typed_, unknown = _TYPE.search(said), _UNKNOWN.search(said)
    found = typed_[2].split(".")[1:] if typed_ is not None else []
    named = tuple(unknown[1].split(".") if unknown is not None else found)
    named = named[named.index("spec") :] if "spec" in named else ()
    for obj, kind in _decoded(pod, cluster) if named else ():
        has = _shape(obj.at(*named).value) if obj.at(*named).present else ""
        if typed_ is not None and has == _WORDS[typed_[1]]:
            wanted = _of_go(typed_[3])
            yield Undecodable(obj, kind, named, has, wanted, _written(obj, cluster))
        elif typed_ is None and has and not unknown_fields.defines(kind, *named, of=obj.version):
            yield Undecodable(obj, kind, named, has, "", _written(obj, cluster))


def _of_go(name: str) -> str:
    """Return what a type of Go takes; a name of its own may be of any form."""
    known = (words for begin, words in _GO.items() if name.lstrip("*").startswith(begin))
    return next(known, f"a {name}")


_GO: Final = {
    "[]": _LIST,
    "map[": _OBJECT,
    "string": "a text",
    "bool": "true or false",
    "int": "a number",
    "uint": "a number",
    "float": "a number",
}


def _shape(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    shapes = ((dict, _OBJECT), (list, _LIST), (str, "a text"), ((int, float), "a number"))
    return next((words for kind, words in shapes if isinstance(value, kind)), "nothing")


def _written(obj: Object, cluster: Cluster) -> str:
    """Return what wrote an object last in another version; empty: nothing did."""
    others = [
        each
        for each in obj.metadata["managedFields"].items()
        if each["apiVersion"].text != obj.api_version and each["subresource"].text != "status"
    ]
    last = max(others, key=lambda each: each["time"].text or "", default=None)
    if last is None:
        return ""
    version, by = last["apiVersion"].text or "?", last["manager"].text or "?"
    return f" (written as {version} by {by}{clock.past(last['time'].text, cluster)})"


def _applied(obj: Object) -> Mapping[str, Any]:
    """Return the spec that was applied as another version; empty: none is known."""
    found = json_codec.embedded(obj.annotations.get(_APPLIED))
    own = isinstance(found, dict) and found.get("apiVersion") != obj.api_version
    spec = found.get("spec") if own else None
    return spec if isinstance(spec, dict) else {}


# --- the form of a version ------------------------------------------------------------------------

_Found = dict[tuple[str, ...], tuple[str, str]]


@functools.cache
def _table(kind: Kind) -> Mapping[str, Any]:
    """Return the types of a kind, in which a list is written as ``[7]``."""
    file = unknown_fields.FOLDER / f"{kind.resource}.json"
    loaded: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def _differing(obj: Object, kind: Kind) -> _Found:
    """Return the fields that have another form than in each known release of their version."""
    table = _table(kind)
    roots = table["versions"].get(obj.api_version.rpartition("/")[2], ())
    found = [dict(_differ(obj.data, root, table["types"], ())) for root in roots]
    every = set.intersection(*map(set, found)) if found else set()
    return {path: found[0][path] for path in sorted(every) if path[0] == "spec"}


def _differ(
    value: Mapping[str, Any], node: int, types: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, str]]]:
    for key, item in value.items():
        below = types[node].get(key, types[node].get(unknown_fields.ANY, unknown_fields.FREE))
        if item is None or below == unknown_fields.FREE or len(path) > _DEEPEST:
            continue
        wanted, has = _LIST if isinstance(below, list) else _OBJECT, _shape(item)
        if has != wanted:
            yield (*path, key), (has, wanted)
        elif has == _OBJECT:
            yield from _differ(item, below, types, (*path, key))
