"""Names that the package exports, each from its module; they are imported on first access."""

from .blocks.evaluate import Status as Status
from .declare.claims import EVERY_PANEL as EVERY_PANEL
from .declare.claims import Claim as Claim
from .declare.claims import Erratum as Erratum
from .declare.claims import Finding as Finding
from .declare.claims import Look as Look
from .declare.claims import claim as claim
from .declare.claims import claims_in as claims_in
from .declare.claims import two_sided_level as two_sided_level
from .declare.claims import verdict as verdict
from .declare.factors import Factor as Factor
from .declare.factors import Measure as Measure
from .declare.factors import Method as Method
from .declare.factors import Statistic as Statistic
from .declare.panel import Panel as Panel
from .declare.streams import Streams as Streams
from .declare.study import Criteria as Criteria
from .declare.study import Figure as Figure
from .declare.study import Scale as Scale
from .declare.study import Study as Study
from .errors import BadInputError as BadInputError
from .results.conversions import to_arviz as to_arviz
from .results.conversions import to_pandas as to_pandas
from .results.summaries import summarise as summarise
from .runs.run import extend as extend
from .runs.run import resume as resume
from .runs.run import run as run
from .runs.submission import cancel as cancel
from .runs.submission import submit as submit
from .store.copies.compact import compact as compact
from .store.copies.merge import merge as merge
from .store.datasets import open_results as open_results

__version__: str
