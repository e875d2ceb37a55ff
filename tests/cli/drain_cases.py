"""What ``drain`` says about the cluster of ``test_drain_plan``."""

BLOCKING_REASON = (
    "LiveMigrate, but cannot migrate: DisksNotLiveMigratable; "
    "InterfaceNotLiveMigratable (no interface is given and the cluster's default is 'bridge')"
)
BLOCKING_REMEDY = (
    "let drains shut the guest down, which takes effect after its restart (virtctl restart oracle "
    "-n shop): kubectl patch vm oracle -n shop --type=merge -p "
    """'{"spec":{"template":{"spec":{"evictionStrategy":"LiveMigrateIfPossible"}}}}'"""
)
OR_MIGRATES = (
    "evictionStrategy LiveMigrate, which takes effect after its restart (virtctl restart batch -n "
    "shop); or migrate it before the drain (virtctl migrate batch -n shop)"
)
RUN = (
    "kubectl patch vm batch -n shop --type=merge -p "
    """'{"spec":{"running":null,"runStrategy":"Always"}}'"""
)

TEXT = f"""\
Nodes that can be drained now: a, c

node b (cordoned): 2 VMs: 1 blocks the drain, 1 migrates
  blocks the drain  shop/oracle  {BLOCKING_REASON}
      to do: {BLOCKING_REMEDY}
  migrates          shop/web     LiveMigrate, and it can migrate

node a: 2 VMs: 1 stays stopped, 1 restarts elsewhere
  stays stopped       shop/batch  None; runStrategy Manual
      to do: set runStrategy Always: {RUN}; or start it by hand afterwards; or {OR_MIGRATES}
  restarts elsewhere  shop/cache  None; runStrategy Always

2 nodes without VMs: c, d
No VM can go to b now: cordoned
Updates of running VMs (LiveMigrate): 3 migrated, 1 never
  never: shop/oracle (it cannot migrate: DisksNotLiveMigratable)
No health check can remediate 2 nodes with VMs, which would not restart after a loss: a, b
Can the cluster be upgraded today? No: 1 of 4 nodes cannot be drained (1 VM): b. 1 VM would stay stopped.
"""  # noqa: E501
