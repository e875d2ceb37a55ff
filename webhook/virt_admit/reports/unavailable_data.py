"""What a forecast could not read or determine, as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from virt_admit.model.commands import shell
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI, by_resource
from virt_admit.model.kubevirt.instances import storage
from virt_admit.model.messages import MOST_NAMES, count, names

_SHOWS_VMS: Final = frozenset(kind.resource for kind in (NODE, POD, VMI))
"""A plan may lack VMs if objects of these kinds may be missing."""


def forbidden(resources: Iterable[str]) -> str:
    """Return which kinds (``plural.group``) may not be listed, and the right to ask for;
    empty without one.

    Secrets are left out: a snapshot of another tool may name them, but no rule and no forecast
    looks them up.
    """
    refused = sorted(each for each in resources if each != "secrets")
    if not refused:
        return ""
    what = f"--resource={','.join(refused)}"
    grant = shell("kubectl", "create", "clusterrole", "virt-admit-reader", "--verb=get,list", what)
    which = (
        f"{', '.join(refused)}, so what rests on {'it' if len(refused) == 1 else 'them'} is not "
        "judged"
    )
    return (
        f"forbidden: this account may not list {which}. Ask the cluster administrator for: {grant}"
    )


def may_lack_vms(unseen: Iterable[str]) -> bool:
    """Return whether there may be more VMs than are known."""
    return not _SHOWS_VMS.isdisjoint(unseen)


def vms(number: int, unseen: Iterable[str]) -> str:
    """Return the number of VMs in words.

    Where they could not be read it never says that there are none.
    """
    if not may_lack_vms(unseen):
        return count(number, "VM")
    return f"{count(number, 'known VM')}, maybe more" if number else "its VMs could not be read"


def not_available(unseen: Iterable[str]) -> Iterator[str]:
    """Yield a line about objects that could not be read,
    and one about everything else that is not known.
    """
    unseen = tuple(unseen)
    objects = [what for what in unseen if by_resource(what.partition(" ")[0])]
    if storage.NO_DEFAULT in unseen:  # the classes were read
        yield f"Missing: {storage.NO_DEFAULT}."
    others = [what for what in unseen if what not in (*objects, storage.NO_DEFAULT)]
    if objects:
        more = " There may be more VMs." if may_lack_vms(objects) else ""
        yield f"Not available: {names(objects)}.{more}"
    if others:
        hidden = len(others) - MOST_NAMES
        also = [f"and {count(hidden, 'more fact')}"] if hidden > 0 else []  # each is a whole clause
        yield f"Cannot be determined: {'; '.join(others[:MOST_NAMES] + also).removesuffix('.')}."
