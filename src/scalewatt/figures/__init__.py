"""Figures 1 to 7: each module draws one figure from that figure's own table and nothing else."""
