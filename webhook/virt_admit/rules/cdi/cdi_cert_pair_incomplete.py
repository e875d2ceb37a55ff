"""A certificate group of CDI sets only one of ``duration`` and ``renewBefore``.

**Why.** CDI's components handle an incomplete pair differently. The operator adds the default of
the missing value, and the upload and clone controllers ignore the whole group. With ``duration``
alone the operator renews at its default age: 24 hours for the CA, 12 hours for the others. A
certificate with a shorter lifetime expires before its renewal, and uploads and clones then fail.

**Fix.** Set both.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import CDI
from virt_admit.model.kubevirt.settings import cel_certificates, cert_settings
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, format_duration, rule

_AGES: Final = cert_settings.CDI_REFRESH_AGE


@rule(
    kinds=(CDI,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=f"{cel_certificates.GROUPS}.filter(g, g.set && !g.renew_set)",
            when=(
                "item.duration[0] <= "
                f"{{{', '.join(f'{cel.text(n)}: {age}' for n, age in _AGES.items())}}}[item.name]"
            ),
            path=f"{cel_certificates.CERT_PATH} + item.name",
            message=(
                "'without renewBefore CDI renews certificates at its default age; with duration ' "
                f"+ {cel.shown('item.written')} + ' they have expired by then. Set renewBefore "
                "too.'"
            ),
            value="[dyn(item.written), dyn(null)]",
        ),
    ),
    sources=(
        "kubevirt/containerized-data-importer:pkg/operator/resources/cert/factory.go",
        "kubevirt/containerized-data-importer:pkg/operator/api.go#GetCertConfigWithDefaults",
    ),
)
def check(cdi: Object, _context: Context) -> Findings:
    for group in cert_settings.groups(cdi):
        duration, renew_before = group.duration_field, group.renew_before_field
        if duration.present == renew_before.present:
            continue
        age = cert_settings.CDI_REFRESH_AGE[group.name]
        if duration.present and group.duration <= age:
            message = (
                f"without renewBefore CDI renews certificates at age {format_duration(age)}; with "
                f"duration {format_duration(group.duration)} they have expired by then. Set "
                "renewBefore too."
            )
            max_action = Action.DENY
        else:
            missing = "renewBefore" if duration.present else "duration"
            message = (
                f"{missing} is missing; CDI's operator uses the default but its controllers ignore "
                "this group. Set both."
            )
            max_action = Action.WARN
        yield Finding(
            group.field.path,
            message,
            value=(duration.value, renew_before.value),
            cause=Cause.REQUIRED,
            max_action=max_action,
        )
