"""From recordings of sensors to energy per node, device kind and stage.

`integration` turns a series of samples into an energy curve, `accounting` makes the tables of a run,
`views` answer for one file or for a run that goes on.
"""
