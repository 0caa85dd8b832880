"""From recordings of sensors to energy per node, device kind and stage.

`read_perun_file` and `read_journal` give a `Recording` (samples.py); integrate.py turns each series
into an energy curve; node.py adds devices up; account.py makes the tables of a run, summary.py the
answer for one file. Nothing is imported here, because the sampler imports this package too.
"""
