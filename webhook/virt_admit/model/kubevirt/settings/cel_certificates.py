"""The lifetimes of certificates in CEL, as ``cert_settings`` reads them."""

from __future__ import annotations

from typing import Final

from virt_admit.model import cel
from virt_admit.model.cel_durations import is_invalid, parsed
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT, Kind
from virt_admit.model.kubevirt.settings import cert_settings
from virt_admit.model.kubevirt.settings.cel_settings import cel_path, cel_setting
from virt_admit.model.kubevirt.settings.cert_settings import DEPRECATED, DURATION, RENEW_BEFORE
from virt_admit.model.kubevirt.settings.configuration import Setting

CERT_PATH: Final = f"{cel_path(Setting.CERTIFICATES)} + '.'"
_BLOCK: Final = cel.entries(cel_setting(Setting.CERTIFICATES))
"""The block, bound to the name ``block`` below."""


def _by_kind(lists: dict[Kind, list[str]]) -> str:
    """Return the list of the object's kind; its items are over ``block``."""
    kubevirt, cdi, hyperconverged = (f"[{', '.join(lists[kind])}]" for kind in (KUBEVIRT, CDI, HCO))
    chosen = f"self.kind == 'KubeVirt' ? {kubevirt} : self.kind == 'CDI' ? {cdi} : {hyperconverged}"
    return f"[{_BLOCK}].map(block, {chosen})[0]"


def _value(path: str) -> str:
    return f"dyn(block.?{path.replace('.', '.?')}.orValue(null))"


def _written(group: str, role: str, path: str) -> str:
    least = 1 if role == DURATION else 0
    return (
        f"{{'group': dyn('{group}'), 'path': dyn('{path}'), 'value': {_value(path)}, 'least': "
        f"dyn({least})}}"
    )


def _group(kind: Kind, name: str) -> str:
    default = cert_settings.defaults(kind)[name]
    values = {"name": f"dyn('{name}')", "usual_duration": f"dyn({default.duration})"}
    # a fifth of the duration never exceeds it, and no rule that denies asks for more
    values["usual_renew"] = f"dyn({default.renew_before or 0})"
    for role, key in ((DURATION, "duration"), (RENEW_BEFORE, "renew")):
        path, value = f"'{name}.{role}'", _value(f"{name}.{role}")
        for older, meaning in DEPRECATED.items():
            if kind is KUBEVIRT and meaning == (name, role):
                path = f"(block.?{older}.orValue(null) != null ? '{older}' : {path})"
                value = f"(block.?{older}.orValue(null) != null ? {_value(older)} : {value})"
        values |= {f"{key}_path": f"dyn({path})", key: value}
    return "{" + ", ".join(f"'{key}': {value}" for key, value in values.items()) + "}"


_ROLES: Final = (DURATION, RENEW_BEFORE)
_WRITTEN: Final = {
    kind: [
        *(
            _written(name, role, f"{name}.{role}")
            for name in cert_settings.defaults(kind)
            for role in _ROLES
        ),
        *(_written(*DEPRECATED[older], older) for older in DEPRECATED if kind is KUBEVIRT),
    ]
    for kind in (KUBEVIRT, CDI, HCO)
}
WRITTEN: Final = f"{_by_kind(_WRITTEN)}.filter(w, w.value != null)"
"""Every duration that the object sets: ``group``, ``path``, ``value``, and the ``least``
nanoseconds that are valid.
"""

VALID: Final = (
    f"(!{is_invalid('item.value')} && {parsed('item.value')}.all(n, n >= int(item.least)))"
)
"""Whether the ``item`` of ``WRITTEN`` is valid."""

WRITTEN_IN_VALID_GROUPS: Final = (
    f"[{WRITTEN}].map(all, all.filter(w, all.all(item, item.group != w.group || {VALID})))[0]"
)
"""What ``WRITTEN`` has of groups without a value that is not valid."""

_RAW: Final = _by_kind(
    {kind: [_group(kind, name) for name in cert_settings.defaults(kind)] for kind in _WRITTEN}
)
_DURATION: Final = (
    f"(g.duration == null ? [int(g.usual_duration)] : {parsed('g.duration')}.filter(n, n > 0))"
)
_RENEW: Final = f"(g.renew == null ? [int(g.usual_renew)] : {parsed('g.renew')}.filter(n, n >= 0))"
GROUPS: Final = (
    f"{_RAW}.map(g, {{'name': dyn(g.name), 'set': dyn(g.duration != null), 'renew_set': "
    "dyn(g.renew != null), 'written': dyn(g.duration), 'duration_path': dyn(g.duration_path), "
    f"'renew_path': dyn(g.renew_path), 'duration': dyn({_DURATION}), 'renew': "
    f"dyn({_RENEW})}}).filter(g, g.duration.size() > 0 && g.renew.size() > 0)"
)
"""The groups whose values are valid, with the nanoseconds in force as lists of one:
``duration`` and ``renew``.
"""
