"""CSI drivers whose storage does not let them in: no volume of them is attached anywhere."""
