"""ResourceQuotas."""
