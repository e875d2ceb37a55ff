"""Numbers of workload updates and of migrations that KubeVirt or its operators cannot use.
Each row has its own page.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model import cel, cel_durations
from virt_admit.model.kubernetes.int_or_percent import MAX_INT32
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubernetes.quantities import QUANTITY
from virt_admit.model.kubernetes.units import LONGEST, parse_duration, show
from virt_admit.model.kubevirt.settings import cel_settings, migration_limits
from virt_admit.model.kubevirt.settings.configuration import Setting
from virt_admit.rule import Action, Context, Field, Finding, Findings, Kind, Object, Rule, rule


def _denial(place: str, path: str, name: str, valid: str, message: str) -> cel.Denial:
    """Return the denial of one number in CEL; ``valid`` is over the number."""
    value = f"{place}.?{name}.orValue(null)"
    return cel.Denial(
        when=f"{cel.present(f'{place}.?{name}')} && ![{value}].exists(number, {valid})",
        path=f"{path} + '.{name}'",
        message=f"{cel.shown(value)} + {cel.text(message)}",
        value=value,
    )


_UPDATES: Final = cel_settings.cel_setting(Setting.UPDATES)
_UPDATES_PATH: Final = cel_settings.cel_path(Setting.UPDATES)
_LIMITS: Final = cel_settings.MIGRATION_LIMITS
_LIMITS_PATH: Final = cel_settings.MIGRATION_PATH
_INTERVAL: Final = f"{_UPDATES}.?batchEvictionInterval"
_QUANTITY: Final = cel.text(f"^(?:{QUANTITY.pattern})$")


def integer(_: Object, field: Field) -> int:
    if field.integer is None:
        raise ValueError
    return field.integer


def int32(_: Object, field: Field) -> int:
    """Read a number that the operators can decode: neither negative nor above MAX_INT32."""
    if field.integer is None or not 0 <= field.integer <= MAX_INT32:
        raise ValueError
    return field.integer


def invalid_number(
    rule_id: str,
    *,
    page: str,
    kinds: tuple[Kind, ...],
    fields: Callable[[Object], Iterable[Field]],
    read: Callable[[Object, Field], int | Fraction | None],
    least: int,
    too_small: str,
    sources: tuple[str, ...],
    denials: tuple[cel.Denial, ...],
    unreadable: str = "",
) -> Rule:
    """Declare the rule of one number.

    Its messages get ``{value}`` as the user wrote it, and ``{number}``.

    Args:
        read: raises ValueError for what is not such a number.
        denials: the same in CEL.
        unreadable: the message in that case; empty: that of the error.
    """

    @rule(id=rule_id, doc=page, kinds=kinds, action=Action.DENY, denials=denials, sources=sources)
    def check(obj: Object, _context: Context) -> Findings:
        for field in fields(obj):
            if not field.present:
                continue
            try:
                number = read(obj, field)
            except ValueError as error:
                yield Finding(field.path, unreadable.format(value=show(field.value)) or str(error))
                continue
            if number is not None and number < least:
                yield Finding(field.path, too_small.format(value=show(field.value), number=number))

    return check


RULES = (
    invalid_number(
        "batch-eviction-interval-invalid",
        page="""The interval between eviction batches is not a positive duration.

**Why.** Without a pause KubeVirt evicts one batch right after the other and stops nearly all VMs at
once. The schema accepts any string: HyperConverged rejects a malformed duration, KubeVirt only on
updates.

**Fix.** Write a duration such as ``1m0s``, which is the default.
""",
        kinds=(HCO, KUBEVIRT),
        fields=lambda obj: (workload_updates.block(obj)["batchEvictionInterval"],),
        read=lambda _, field: parse_duration(field.value),
        least=1,
        too_small="{value} leaves no pause: all batches of VMs are evicted at once. Use 1m0s.",
        denials=(
            cel_durations.invalid(_INTERVAL, f"{_UPDATES_PATH} + '.batchEvictionInterval'", ""),
            cel_durations.below(
                _INTERVAL,
                f"{_UPDATES_PATH} + '.batchEvictionInterval'",
                1,
                " leaves no pause: all batches of VMs are evicted at once. Use 1m0s.",
            ),
        ),
        sources=(
            "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",
        ),
    ),
    invalid_number(
        "batch-eviction-size-invalid",
        page="""The size of eviction batches is not a positive integer.

**Why.** With 0 or less KubeVirt never evicts a VM, although ``Evict`` looks enabled.

**Fix.** Write at least 1, or remove the field for the default of 10. To disable evictions, remove
``Evict``.
""",
        kinds=(HCO, KUBEVIRT),
        fields=lambda obj: (workload_updates.block(obj)["batchEvictionSize"],),
        read=integer,
        least=1,
        too_small="{number} means that KubeVirt never evicts a VM. Use at least 1.",
        unreadable="{value} is not an integer. Write the number of VMs to evict at once.",
        denials=(
            _denial(
                _UPDATES,
                _UPDATES_PATH,
                "batchEvictionSize",
                "type(number) == int && number >= 1",
                " is not a positive integer; KubeVirt never evicts a VM with less than 1. Use at "
                "least 1.",
            ),
        ),
        sources=(
            "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",
        ),
    ),
    invalid_number(
        "migration-bandwidth-invalid",
        page="""The migration bandwidth is negative or not a valid quantity.

**Why.** The schema accepts a minus sign. virt-launcher then cannot build the parameters of the
migration, and every migration fails. A value that is not a quantity stops the operator.

**Fix.** Write bytes per second with a unit, such as ``64Mi`` or ``1Gi``. ``0`` means no limit.
""",
        kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
        fields=lambda obj: (migration_limits.block(obj)[migration_limits.BANDWIDTH],),
        read=lambda obj, _: migration_limits.bandwidth(obj),
        least=0,
        too_small="{value} is negative, so every migration fails. Use 64Mi, or 0 for no limit.",
        denials=(
            _denial(
                _LIMITS,
                _LIMITS_PATH,
                migration_limits.BANDWIDTH,
                "(type(number) == int ? self.kind != 'HyperConverged' && number >= 0 : "
                f"type(number) == string && number.size() <= {LONGEST} && "
                f"number.matches({_QUANTITY}) && !number.matches('^-[0.]*[1-9]'))",
                " is negative or not a quantity, so every migration fails. Use 64Mi, or 0 for no "
                "limit.",
            ),
        ),
        sources=(
            (
                "kubevirt/hyperconverged-cluster-operator:controllers/handlers/"
                "kubevirt.go#hcLiveMigrationToKv"
            ),
            "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/converter/vcpu/vcpu.go#QuantityToByte",
            (
                "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
                "migrationpolicy-admitter.go#Admit"
            ),
        ),
    ),
    invalid_number(
        "migration-parallel-limit-invalid",
        page="""A limit of parallel migrations is not a positive integer.

**Why.** With a limit of 0 no live migration starts, and every drain of a node with ``LiveMigrate``
VMs hangs. The schema accepts a negative number, but the operators cannot decode it: virt-operator
cannot read a KubeVirt that was created with one.

**Fix.** Write at least 1, or remove the field for the default.
""",
        kinds=(HCO, KUBEVIRT),
        fields=lambda obj: (
            migration_limits.block(obj)[migration_limits.PER_CLUSTER],
            migration_limits.block(obj)[migration_limits.PER_NODE],
        ),
        read=int32,
        least=1,
        too_small="0 means that no live migration starts and every drain hangs. Use at least 1.",
        unreadable=(
            f"the operators cannot read {{value}}. Use an integer from 1 to {MAX_INT32}, without "
            "quotes."
        ),
        denials=(
            *(
                _denial(
                    _LIMITS,
                    _LIMITS_PATH,
                    name,
                    f"type(number) == int && number >= 1 && number <= {MAX_INT32}",
                    " is not a limit: with 0 every drain hangs. Use an integer from 1 to "
                    f"{MAX_INT32}, without quotes.",
                )
                for name in (migration_limits.PER_CLUSTER, migration_limits.PER_NODE)
            ),
        ),
        sources=("kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",),
    ),
    invalid_number(
        "migration-timeout-invalid",
        page="""A migration timeout is negative or not an integer.

**Why.** A negative timeout expires immediately: KubeVirt cancels every migration, and drains never
complete.

**Fix.** Write seconds as a positive integer, or remove the field for the default.
""",
        kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
        fields=migration_limits.timeouts,
        read=integer,
        least=0,
        too_small=(
            "{number} is negative, so every migration is cancelled at once. Use a positive number "
            "of seconds."
        ),
        unreadable="{value} is not an integer. Write a number of seconds, without unit or quotes.",
        denials=(
            *(
                _denial(
                    _LIMITS,
                    _LIMITS_PATH,
                    name,
                    f"(type(number) == int && number >= 0){others}",
                    " is negative, so every migration is cancelled at once, or not an integer. "
                    "Use a positive number of seconds.",
                )
                for name, others in (
                    (migration_limits.COMPLETION_TIMEOUT, ""),
                    # a policy has no such field
                    (migration_limits.PROGRESS_TIMEOUT, " || self.kind == 'MigrationPolicy'"),
                )
            ),
        ),
        sources=(
            (
                "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/"
                "live-migration-source.go#shouldTriggerTimeout"
            ),
            (
                "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/"
                "live-migration-source.go#isMigrationProgressing"
            ),
            (
                "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
                "migrationpolicy-admitter.go#Admit"
            ),
        ),
    ),
)
