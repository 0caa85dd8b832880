"""Recordings of other tools: one module for each format, all giving the same `Recording`."""
