"""Charts that are never as Fleet renders them, as they make a certificate at each rendering.

Helm's ``genCA`` gives another one each time. Fleet renders a chart to compare it, so the Secret and
the ``caBundle`` of the webhooks that use it always differ, unless ``spec.diff.comparePatches``
leaves them out; to apply the chart again writes one more. Sources: rancher/fleet:internal/cmd/
agent/deployer/desiredset/diff.go#Diff (the patch has what the chart would set) #newNormalizers;
harvester/harvester#7442, #7996, harvester/harvester-installer pull request 939.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from virt_admit.model.commands import json_patch, merge_patch, typed
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import (
    MANAGED_CHART,
    MUTATING_CONFIGURATION,
    VALIDATING_CONFIGURATION,
)
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names

READS: Final[Reads] = {MANAGED_CHART: ("spec.diff", "status")}
HOLDER: Final = "Secret"
_WEBHOOKS: Final = (VALIDATING_CONFIGURATION.kind, MUTATING_CONFIGURATION.kind)
_MOST: Final = 8
"""Objects of a chart that a command names."""


class _Changed(NamedTuple):
    """An object that a chart would change."""

    status: Field
    fields: str
    pointer: str
    """What Fleet is to leave out of the comparison."""
    certificates: frozenset[str]

    @property
    def title(self) -> str:
        return _title(self.status)

    @property
    def left_out(self) -> dict[str, Any]:
        """Return the entry of comparePatches."""
        own = {key: self.status[key].text for key in ("apiVersion", "kind", "namespace", "name")}
        named = {key: text for key, text in own.items() if text}
        return {**named, "jsonPointers": [self.pointer]}


def of(chart: Object, entry: Field, then: str) -> tuple[str, str] | None:
    """Return that a chart differs in a certificate which it makes at each rendering, as a clause,
    and the remedy; None: it is not known to do that.

    Args:
        chart: the ManagedChart.
        entry: what is not ready (bundle_types.go#NonReadyResource).
        then: what follows from the remedy, as a clause.
    """
    changed = list(islice(_changed(entry), _MOST))
    secrets = [each for each in changed if each.status["kind"].text == HOLDER]
    made = frozenset[str]().union(*(each.certificates for each in secrets))
    webhooks = [each for each in changed if each not in secrets and each.certificates & made]
    used = frozenset[str]().union(*(each.certificates for each in webhooks))
    pair = [each for each in secrets if each.certificates & used] + webhooks
    new = [each for each in pair if not _is_left_out(chart, each)]
    if not webhooks or not new:
        return None
    differ = " and ".join(f"{each.title} ({each.fields})" for each in pair)
    left = "them" if len(new) == len(pair) else names([each.title for each in new], 200)
    reason = (
        f": {differ} differ: Fleet would set another CA, the same in both, as of a chart that "
        "makes its certificate at each rendering, so to apply it again does not help. Its "
        f"spec.diff.comparePatches does not leave {left} out"
    )
    told, parts = {each.status.path for each in pair}, ("modifiedStatus", "nonReadyStatus")
    rest = [each for part in parts for each in entry[part].items() if each.path not in told]
    words, further = "Have Fleet leave these objects out of its comparison", ""
    if rest:  # they keep the chart from being ready as well
        further = f"see to {names(map(_title, rest), 200)} as well, which Fleet names beside them"
    else:
        words += f", {then}"
    return reason, typed(words, _command(chart, [each.left_out for each in new]), further)


def _title(status: Field) -> str:
    place = filter(None, (status["namespace"].text, status["name"].text))
    return f"{status['kind'].text} {'/'.join(place)}"


def _changed(entry: Field) -> Iterator[_Changed]:
    """Yield the Secrets and the configurations of webhooks whose certificates would change."""
    for status in entry["modifiedStatus"].items():
        patch = json_codec.embedded(status["patch"].text)
        if not isinstance(patch, dict):
            continue
        if status["kind"].text == HOLDER and isinstance(data := patch.get("data"), dict):
            fields = ", ".join(f"data.{key}" for key in sorted(data))
            values = frozenset(each for each in data.values() if isinstance(each, str) and each)
            yield _Changed(status, fields, "/data", values)
        elif status["kind"].text in _WEBHOOKS and isinstance(hooks := patch.get("webhooks"), list):
            bundles = frozenset(filter(None, map(_bundle, hooks)))
            yield _Changed(status, "webhooks.clientConfig.caBundle", "/webhooks", bundles)


def _bundle(hook: object) -> str:
    own = hook.get("clientConfig") if isinstance(hook, dict) else None
    found = own.get("caBundle") if isinstance(own, dict) else None
    return found if isinstance(found, str) else ""


def _is_left_out(chart: Object, changed: _Changed) -> bool:
    """Return whether Fleet does not compare the certificates of an object, or all of it."""
    for each in chart.at("spec", "diff", "comparePatches").items():
        same = (
            each["kind"].text == changed.status["kind"].text
            and each["name"].text in (None, "", changed.status["name"].text)
            and each["namespace"].text in (None, "", changed.status["namespace"].text)
        )
        steps = list(each["operations"].items())
        pointers = [item.text or "" for item in each["jsonPointers"].items()]
        pointers += [item["path"].text or "" for item in steps]
        whole = any(item["op"].text == "ignore" for item in steps)
        if same and (whole or any(item.startswith(changed.pointer) for item in pointers)):
            return True
    return False


def _command(chart: Object, entries: Sequence[dict[str, Any]]) -> str:
    name, namespace = chart.name, chart.namespace
    if not chart.at("spec", "diff", "comparePatches").is_list:
        data = {"spec": {"diff": {"comparePatches": entries}}}
        return merge_patch(MANAGED_CHART, name, namespace, data)
    end = Path("spec", "diff", "comparePatches", "-")
    return json_patch(MANAGED_CHART, name, namespace, [Patch("add", end, each) for each in entries])
