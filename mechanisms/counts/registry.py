"""Registry of the mechanisms that release counts, and thereby a Dirichlet posterior.

An entry is a `mechanisms.counts.mechanism.Mechanism`, defined in the file of the mechanism. To add a mechanism, define
it in a separate file and add it to `MECHANISMS`; the tests are parametrised over the registry.
"""

from mechanisms.core.metadata import register
from mechanisms.counts.bound_calibration import VARYING_BOUND
from mechanisms.counts.calibration import CALIBRATED
from mechanisms.counts.discrete_gaussian import DISCRETE_GAUSSIAN
from mechanisms.counts.exponential import EXPONENTIAL
from mechanisms.counts.hamming import HAMMING_EXACT
from mechanisms.counts.k_norm import K_NORM
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.minimax_post_processing import K_NORM_MINIMAX
from mechanisms.counts.noise import GEOMETRIC, GEOMETRIC_PROJECTED, LAPLACE, LAPLACE_DIMENSION, LAPLACE_PROJECTED
from mechanisms.counts.optimal import OPTIMAL
from mechanisms.counts.permute_and_flip import PERMUTE_AND_FLIP, PERMUTE_AND_FLIP_EXACT

MECHANISMS: dict[str, Mechanism] = register(
    __name__,
    *EXPONENTIAL, *CALIBRATED, VARYING_BOUND, LAPLACE, LAPLACE_DIMENSION, GEOMETRIC, HAMMING_EXACT, OPTIMAL, K_NORM,
    K_NORM_MINIMAX, GEOMETRIC_PROJECTED, LAPLACE_PROJECTED, PERMUTE_AND_FLIP, PERMUTE_AND_FLIP_EXACT, DISCRETE_GAUSSIAN,
)  # fmt: skip

_BUILT_IN = dict(MECHANISMS)


def is_built_in(mechanism: Mechanism) -> bool:
    """Return True for the unmodified mechanisms of this package, whose fields are verified by the tests."""
    return _BUILT_IN.get(mechanism.name) is mechanism
