"""PodDisruptionBudgets that Rook writes for the daemons of Ceph."""
