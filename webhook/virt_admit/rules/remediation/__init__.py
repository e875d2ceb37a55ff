"""Templates of remediators, and references to them."""
