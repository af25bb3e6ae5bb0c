"""Benchmark of a user's method: it runs in every study that accepts its kind, and one page ranks it.

`computation` plans the runs, and compares them with references, which are stored or `shipped`; `run` carries them out.
A `compared_panel` has one `method_summary` per method, from trials or from a shipped file; `uniformity` tests
calibration; `losses` compares mean losses, by paired trials if both methods have them; `results` joins them; `times`
measures seconds per fit; `tables`, `figures` and `page` show the results.
"""
