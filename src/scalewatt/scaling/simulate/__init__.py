"""Runs from the scaling model: the files that a training would leave, written without one."""
