"""Draws of one parameter of a posterior with a privacy guarantee (P3), and chains that are private by themselves.

Dirichlet posteriors: `tempered` draws, draws given noisy counts (`gaussian_counts`), and their Rényi divergences
(`dirichlet_divergence`). Binary regressions: `glm_mechanisms` has links, targets and guarantees, `glm_sampling` draws
from the targets, and `worst_case` constructs neighbouring data sets for audits. `langevin` and `penalty` are chains
whose finite number of steps is private; `chains` lists them. `private_logistic` releases one draw of real data.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi differential privacy mechanisms for posterior sampling", NeurIPS 2017.
"""
