"""Meters of whole nodes that other hosts or machines of one maker have."""
