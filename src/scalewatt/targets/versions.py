"""Version of what each step of the workflow makes.

Raise a number when a change of the code changes the step's results: finished results are then made again.
tests/golden/versions.csv notes the goldens that belong to each number.
"""

ENERGY = 4
IDLE = 3
TABLES = 7
FIGURES = 6
PAGES = 5
CLAIMS = 6
PLAN = 4
PREDICTION = 1
SIMULATION = 2
REPORT = 4
