"""Results that others publish as tables: totals of runs, without recordings of their own."""
