"""Private posterior sampling of the weights of a binary regression (P3).

`mechanisms` defines the link functions, the target distributions and their guarantees, and `sampling`
draws from them. `audit` computes Rényi divergences between the targets for neighbouring data sets, for example for the
data sets that `worst_case` constructs. `langevin` and `penalty` are chains whose finite number of steps is private.
`chains` lists them, and `private_logistic` releases one draw of real data.
"""
