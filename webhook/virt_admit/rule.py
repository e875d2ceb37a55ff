"""What a rule is: one named opinion about one or more kinds of objects.

Rule authors need no other file. Besides the names below they import from here every kind of
``model/kubernetes/kinds.py`` and the names of the model that most rules need: one line for all of
them. Where that line is too long, kinds and other names come from their own module.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

from virt_admit.model.cel import Denial
from virt_admit.model.kubernetes.cluster import Cluster as Cluster
from virt_admit.model.kubernetes.cluster import Unseen as Unseen
from virt_admit.model.kubernetes.cluster import gather as gather
from virt_admit.model.kubernetes.json_patch import Patch as Patch
from virt_admit.model.kubernetes.kinds import *  # noqa: F403 - every kind
from virt_admit.model.kubernetes.kinds import Kind as Kind
from virt_admit.model.kubernetes.objects import Field as Field
from virt_admit.model.kubernetes.objects import Object as Object
from virt_admit.model.kubernetes.objects import Path as Path
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.reads import union as union
from virt_admit.model.kubernetes.units import format_duration as format_duration
from virt_admit.model.kubernetes.units import parse_duration as parse_duration
from virt_admit.model.kubernetes.units import show as show
from virt_admit.model.lookups import ReviewCache
from virt_admit.model.messages import LONGEST_MESSAGE, LONGEST_WARNING, did_you_mean, first_within
from virt_admit.model.messages import count as count
from virt_admit.model.messages import cut as cut
from virt_admit.model.messages import names as names
from virt_admit.model.problems import ProblemCause as ProblemCause
from virt_admit.model.problems import ProblemId as ProblemId
from virt_admit.model.problems import problem_of as problem_of
from virt_admit.model.releases import NO_TARGET, UpgradeTarget

S = TypeVar("S")
T = TypeVar("T")
# PEP 696, so that Context alone means a context without parameters; at run time from Python 3.13 on
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    P = TypeVarWithDefault("P", default="NoParams")
else:
    P = TypeVar("P")


class InvalidRule(ValueError):
    """A rule file that cannot be used.

    The message is one line: the file, the problem, what to write.
    """


class Action(enum.IntEnum):
    """What happens because of a finding. Ordered: off < audit < warn < deny."""

    OFF = 0
    AUDIT = 1
    WARN = 2
    DENY = 3

    def __str__(self) -> str:
        return self.name.lower()


class Urgency(enum.IntEnum):
    """What the findings of a rule are about. A scan shows the most urgent ones first."""

    DOWN = 0
    """A VM, a node or a part of the platform does not work at all now."""
    STUCK = 1
    """Something is refused now, or does not go on."""
    LATER = 2
    """Something would happen: in a drain, an update, a failure or a start."""


class DrainAdvice(enum.IntEnum):
    """What a rule says about a drain of the node of a VM that runs. More is greater.

    A scan shows the greatest one of each VM, and ``LOSS`` besides it. A VM that is down has none.
    """

    NONE = 0
    LOSS = 1
    """It stays off after the loss of its node."""
    STRATEGY = 2
    """Its eviction strategy decides."""
    UNKNOWN = 3
    """Whether it can migrate cannot be determined."""
    STAYS_OFF = 4
    """It is shut down, and does not start again."""
    NO_MIGRATION = 5
    """It cannot migrate."""
    NO_NODE = 6
    """No other node can run it."""


class Operation(enum.StrEnum):
    """The operations of an admission request that rules are asked about."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Cause(enum.StrEnum):
    """``status.details.causes[].reason`` of a denial (k8s.io/apimachinery metav1.CauseType)."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    DUPLICATE = "FieldValueDuplicate"
    TYPE = "FieldValueTypeInvalid"


class _FromObject:
    """Marks that the offending value is the value at the finding's path."""

    def __reduce__(self) -> str:
        """Let a copy that another process sends be the same one."""
        return "FROM_OBJECT"


FROM_OBJECT: Final = _FromObject()

POLICY_FINDING: Final = "PolicyFinding"
"""The reason of Events about rules that name no other."""


class Finding(NamedTuple):
    """One problem at one path. Says nothing of what happens because of it: the policy decides that.

    ``message`` says what is wrong with which value, what it would do, and what to write instead, in
    one line. It is complete on its own: kubectl shows nothing else from virt-admit. The engine adds
    the rule's id.
    """

    path: Path
    message: str
    value: Any = FROM_OBJECT
    """The offending value, for the ratchet; by default the value at ``path``.
    A relation gives all its values.
    """
    cause: Cause = Cause.INVALID
    max_action: Action = Action.DENY
    """The strongest action that this finding may lead to, whatever the policy says of its rule."""
    fix: tuple[Patch, ...] = ()
    """What makes the finding go away."""
    why: str = ""
    """For fixes: why this value, as a clause that follows "because" in the warning and in the audit
    log.
    """
    problem: ProblemId | None = None
    """The problem that it shows: other rules, other objects and other verbs may show it too. None:
    it has no id.
    """
    command: str = ""
    """What an administrator types about it. Empty: a command about the object is enough."""


@dataclass(frozen=True)
class NoParams:
    """A rule without parameters."""


NO_PARAMS: Final = NoParams()


def param(default: Any, doc: str) -> Any:
    """A parameter of a rule: a field of its frozen ``Params`` dataclass,
    documented where it is declared.
    """
    return field(default=default, metadata={"doc": doc})


def duration(default: str, doc: str) -> Any:
    """A parameter that policies write as a duration (``90s``) and that the check reads as
    nanoseconds.
    """
    return field(default=parse_duration(default), metadata={"doc": doc, "unit": "duration"})


def percent(default: int, doc: str) -> Any:
    """A parameter that policies write as a percentage (``25%``) and that the check reads as a
    number.
    """
    return field(default=default, metadata={"doc": doc, "unit": "percent"})


def choice(default: str, choices: tuple[str, ...], doc: str) -> Any:
    """A parameter with a few possible texts."""
    return field(default=default, metadata={"doc": doc, "choices": choices})


class Judgement(NamedTuple):
    """What the policy says about an object that another controller would create because of the
    request.
    """

    denied: Mapping[tuple[Any, ...], str]
    """The rule and the field of each denial in words, by what identifies the denial in other
    versions of the object.
    """
    unseen: tuple[str, ...] = ()
    """What the rules that deny could not read."""


def no_judge(_obj: Object) -> Judgement:
    """Judge nothing: for rules that run without a policy."""
    return Judgement({})


class Context(NamedTuple, Generic[P]):
    """Everything a check may know besides the object."""

    cluster: Cluster
    params: P
    facts: ReviewCache
    """The values that ``cached`` has computed, shared by all rules of one request."""
    operation: Operation = Operation.CREATE
    old: Object | None = None
    """The object before the update; None on CREATE, and while the old object itself is judged."""
    user: str = ""
    """The user of the request; empty in ``check`` and ``scan``."""
    groups: frozenset[str] = frozenset()
    subresource: str = ""
    kind: Kind | None = None
    """The kind of the request; the object of a sub-resource has another one (``Scale``)."""
    target: UpgradeTarget = NO_TARGET
    """The releases that ``--target`` names; empty at admission."""
    judge: Callable[[Object], Judgement] = no_judge
    """Judges a derived object by all rules, as if the user of the request created it."""

    def cached(self, function: Callable[[S, Cluster], T], obj: S) -> T:
        """Return ``function(obj, cluster)``, computed once per review for all rules.

        It may raise ``Unseen``.
        """
        return self.facts.of(function, obj)


Findings: TypeAlias = Iterator[Finding | Unseen]
"""What a check yields: findings, and ``Unseen`` where it is blind."""

Check: TypeAlias = Callable[[Object, Context[Any]], Findings]
"""A rule's function: yields findings; raises or yields ``Unseen`` where it is blind."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RuleOptions:
    """What a rule declares.

    Everything outside the rules (registration, RBAC, docs) is made from these fields.
    """

    kinds: tuple[Kind, ...]
    """The kinds that are judged: these are registered with the API server."""
    action: Action
    """The class out of the box."""
    urgency: Urgency = Urgency.LATER
    """Whether something fails already, for the order of a scan."""
    effect: bool = False
    """Whether it says what something else leads to. A scan shows the rule about the cause instead,
    where one says it.
    """
    drain_advice: DrainAdvice = DrainAdvice.NONE
    """What it says about a drain of the node of a VM that runs:
    a scan shows one such row of a VM.
    """
    event: str = POLICY_FINDING
    """The reason of Events about the rule's findings (``scan --events``): one word in CamelCase."""
    reads: Reads = field(default_factory=dict)
    """What the check looks up: by kind the paths of fields, such as ``{PVC: ("status.phase",)}``;
    see ``model/kubernetes/reads.py``. Retained fields, RBAC and informers are derived from it. A
    test fails if the check reads anything else.
    """
    operations: tuple[Operation, ...] = (Operation.CREATE, Operation.UPDATE)
    subresources: tuple[str, ...] = ()
    """Sub-resources that are judged too (``scale``)."""
    metadata: tuple[str, ...] = ()
    """Annotation and label keys that matter;
    an update that changes neither these nor the spec is not judged.
    """
    only_with: tuple[str, ...] = ()
    """Fields of the VM spec or the VMI spec. Without one of them the check finds nothing, so it is
    not run. A test removes them from each case.
    """
    params: Any = NO_PARAMS
    """The thresholds with their defaults: a frozen dataclass,
    each field documented with its unit.
    """
    at_admission: bool = True
    """Whether the webhook asks the rule too; the others are for ``check`` and ``scan`` alone."""
    of_deleted: bool = False
    """Whether the rule is about objects that are being deleted, of which no other rule is asked.
    Never at admission.
    """
    in_scan: bool = True
    """Whether ``scan`` asks the rule too. A rule about what the API server never stores is for
    ``check`` alone.
    """
    target: Mapping[str, str] = field(default_factory=dict)
    """For a rule about an upgrade: by component the first release that it knows, such as
    ``{"kubevirt": "1.5"}``. It runs only in ``check`` and ``scan`` with a ``--target`` that names
    one of the components.
    """
    fixable: bool = False
    """Whether findings can carry fixes. ``check --fix`` writes them unless the policy says
    ``fix: false``.
    """
    fix_by_default: bool = False
    """Whether ``/mutate`` applies the fixes out of the box,
    not only if the policy says ``fix: true``.
    """
    sources: tuple[str, ...] = ()

    denials: tuple[Denial, ...] = ()
    """The denials of the check in CEL, for ValidatingAdmissionPolicies.
    A test holds both to the same decisions.
    """

    not_in_cel: str = ""
    """Why CEL cannot say the denials, as a clause that follows "it is not exported because"."""

    id: str = ""
    """The rule's name for users; it never changes: ``vm-running-and-run-strategy``.
    By default the name of the module.
    """
    doc: str = ""
    """The rule's page, by default the docstring of the module. First line: the bad pattern. Then
    **Why.** and **Fix.**
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class Rule(RuleOptions):
    """One named opinion: what the decorator ``@rule`` makes of a check."""

    module: str
    """``__name__`` of the module that declares the rule."""
    check: Check

    @property
    def title(self) -> str:
        """The first line of the page: the bad pattern."""
        return " ".join(self.doc.strip().partition("\n\n")[0].split())

    def room(self, path: Path) -> int:
        """Return the characters that a message at this path has: few in a warning of the API
        server, more in a scan.
        """
        return (
            LONGEST_WARNING - len(f"{path}:  [virt-admit/{self.id}]")
            if self.at_admission
            else LONGEST_MESSAGE
        )

    def first_that_fits(self, path: Path, *choices: str) -> str:
        """Return the first message that has room at this path, else the last one."""
        return first_within(self.room(path), *choices)

    def __repr__(self) -> str:
        return f"<Rule {self.id}>"


_OPTIONS: Final = frozenset(option.name for option in fields(RuleOptions))
_REQUIRED: Final = frozenset(("kinds", "action"))


class rule(RuleOptions):  # noqa: N801 - a decorator
    """Declare the function below as a rule: ``@rule(kinds=(VM,), action=Action.WARN)``.

    The function becomes a ``Rule``.
    """

    def __new__(cls, *_: object, **options: object) -> Self:
        """Raise ``InvalidRule`` for options that do not exist and for those that are missing."""
        for name in options.keys() - _OPTIONS:
            meant = did_you_mean(name, sorted(_OPTIONS))
            hint = (
                f"Did you mean {meant}?" if meant else f"Use one of {', '.join(sorted(_OPTIONS))}"
            )
            raise InvalidRule(f"unknown option {name} of @rule. {hint}")
        for name in _REQUIRED - options.keys():
            raise InvalidRule(
                f"@rule has no {name}. Write @rule(kinds=(VM,), action=Action.WARN, ...)"
            )
        return super().__new__(cls)

    def __call__(self, check: Check) -> Rule:
        name = check.__module__
        doc = self.doc or check.__globals__["__doc__"] or ""
        rule_id = self.id or name.rpartition(".")[2].replace("_", "-")
        return Rule(**{**vars(self), "id": rule_id, "doc": doc}, module=name, check=check)
