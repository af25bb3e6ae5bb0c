"""Results of a store: summaries over trials, verdicts on claims, and conversions to pandas and ArviZ.

`summaries` reduces trials to statistics with their Monte Carlo errors, `proportions` has the intervals of events, and
`value_counts` the values that summaries read. `verdicts` judges claims on summaries, and `conversions` returns tables
of pandas and trees of ArviZ. All of them read committed trials only, and none writes.
"""
