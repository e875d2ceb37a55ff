"""One rule on one object: its findings, and what it could not judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from virt_admit.engine.variables import determined
from virt_admit.model.kubernetes.cluster import OUT_OF_TIME, OutOfTime, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Context, Finding, Rule


class Limits(NamedTuple):
    """Upper bounds of one review. ``check`` and ``scan`` have none."""

    expired: Callable[[], bool] = lambda: False
    """Whether the time of the review is over. A function, because reviews do not read the clock."""
    verdicts: float = math.inf
    """How many verdicts of one rule with the same action are kept; the others are counted."""
    fixes: float = math.inf
    """How many findings of one rule are fixed; the others are not."""


NO_LIMITS: Final = Limits()


class Gaps:
    """What a review does not know, because data are missing, a rule failed,
    or the time was over.
    """

    __slots__ = ("errors", "not_judged", "unseen")

    def __init__(self) -> None:
        self.unseen: list[tuple[Rule, str]] = []
        self.errors: list[tuple[Rule, str]] = []
        self.not_judged: list[Rule] = []

    def failed(self, rule: Rule) -> bool:
        """Return whether this rule ended with an exception."""
        return any(failed is rule for failed, _ in self.errors)

    def stop(self, rule: Rule) -> None:
        """Record that a limit of the review, mostly its time, ended this rule."""
        if rule not in self.not_judged:
            self.not_judged.append(rule)
            self.unseen.append((rule, OUT_OF_TIME))


def run(
    rule: Rule,
    obj: Object,
    context: Context[Any],
    gaps: Gaps,
    limits: Limits = NO_LIMITS,
    has_variables: bool = False,
) -> Iterator[Finding]:
    """Run one rule until it ends or the time of the review is over,
    and yield its findings one by one.

    Never raises. The findings that precede a failure are kept. ``has_variables``: see ``Request``.
    """
    # without a rule that was stopped, the time was not over a moment ago
    if gaps.not_judged and limits.expired():
        gaps.stop(rule)
        return
    unseen: dict[str, None] | None = None
    try:
        found = rule.check(obj, context)
        for item in determined(found, obj, context.cluster) if has_variables else found:
            if limits.expired():
                break
            if isinstance(item, Unseen):
                unseen = unseen or {}  # a rule may say the same for each item of a list
                unseen[item.what] = None
            else:
                yield item
    except OutOfTime:
        pass
    except Unseen as missing:
        unseen = unseen or {}
        unseen[missing.what] = None
    except Exception as error:  # a broken rule must not stop a cluster
        _log_failure(rule, obj)
        gaps.errors.append((rule, repr(error)))
    if unseen:
        gaps.unseen += [(rule, what) for what in unseen]
    if limits.expired():
        gaps.stop(rule)


def _log_failure(rule: Rule, obj: Object) -> None:
    """Log the exception that is being handled."""
    import logging  # noqa: PLC0415 - importing it takes time, and failures are rare

    extra = {"rule": rule.id, "kind": obj.kind, "object": obj.full_name}
    logging.getLogger(__name__).exception("rule failed", extra=extra)
