"""Runs that were made elsewhere: from their recordings and descriptions to run folders."""
