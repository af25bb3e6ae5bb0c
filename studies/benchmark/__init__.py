"""Benchmark of a user's method: it runs in every study that accepts its kind, and one page ranks it.

`computation` plans the runs, and compares stores of reference results with them; `run` carries them out; `panel_trials`
reads the trials of all methods of a panel; `uniformity` tests calibration; `losses` compares mean losses by paired
trials; `results` joins them; `times` measures seconds per fit; `tables`, `figures` and `page` show the results.
"""
