"""Facts about node and machine health: checks, remediators, maintenance and their timing."""
