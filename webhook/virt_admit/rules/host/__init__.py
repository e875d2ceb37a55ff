"""Rules about the hosts of bare metal."""
