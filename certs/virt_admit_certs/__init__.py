"""The webhook's own certificate: issued, stored, published, rotated."""
