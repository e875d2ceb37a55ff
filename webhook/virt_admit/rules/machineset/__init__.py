"""MachineSets."""
