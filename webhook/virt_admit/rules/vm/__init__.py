"""Virtual machines, pools, replica sets and instances."""
