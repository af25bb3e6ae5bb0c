"""Private posterior probabilities and quantiles of a regression on a user's table (``dpstudies partition``).

The rows are divided at random by a key (`mechanisms.regression.keyed_partition`) and read once, in blocks. The
posteriors and the releases are computed from the sufficient statistics of each partition.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

import numpy as np
import pandas as pd

from mechanisms.regression.keyed_partition import keyed_partition
from mechanisms.regression.partition_prior import ConjugatePrior, Prior
from mechanisms.regression.partition_probability import PartitionProbability
from mechanisms.regression.partition_publish import publish_probabilities, publish_quantiles, validate_draws
from mechanisms.regression.partition_quantile import PartitionQuantile
from mechanisms.regression.posterior import CoefficientPosterior, coefficient_posterior
from mechanisms.regression.statistics import RegressionStatistics
from mechanisms.release import LedgerFile, require_opendp
from pipeline import Streams
from pipeline.clusters.profiles import load_profile
from pipeline.clusters.user_cluster import ClusterChoice
from pipeline.errors import BadInputError, as_bad_input
from pipeline.tables.formats import unknown_name
from pipeline.tables.tables import open_table
from studies.output import require_file, say, writing
from studies.own_data.divided_rows import divide_rows
from studies.own_data.partition_output import Mechanism, Release
from studies.own_data.partition_request import INTERCEPT, PartitionOptions, Request, find_prior
from studies.own_data.spending import Account

_AT_ONCE = 1_000  # number of partitions per batch of posteriors, whose largest number of quadrature points all have
_SUBSTITUTE = (0.0, 1.0)  # public mean and standard deviation of partitions without a posterior


def answer_partition(options: PartitionOptions) -> None:
    """Release and print posterior probabilities or quantiles of a coefficient."""
    table, output = options.columns.table, options.output.path
    assert table is not None  # the command requires it
    require_file("output", output, ".csv", ".json", kept=(table, options.budget.ledger))
    account = Account.open(options.budget)
    request = options.parse()
    guarantee, noise = request.guarantee(), request.describe_noise()
    name = f"partition of {table}, coefficient {options.coefficient} of {request.target}"

    def confirm() -> None:
        assert guarantee is not None  # methods without a guarantee are refused
        account.confirm(name, guarantee, f"noise: {noise}\n")

    if guarantee is not None:
        account.check(guarantee)
    release = release_table(
        table,
        request,
        account.seed,
        load_profile(options.cluster),
        ledger=account.labelled(name),
        confirm=confirm,
    )
    release.show(options.coefficient, noise, options.output.json)
    for line in account.describe_rest():
        say(line)
    if output is not None:
        with writing(output, f"the values above are {'rehearsed' if release.rehearsal else 'released'}"):
            release.write(output)
        say(f"values: {output}")


def release_table(
    path: str,
    request: Request,
    seed: int | None = None,
    cluster: ClusterChoice = None,
    *,
    ledger: LedgerFile | None = None,
    confirm: Callable[[], object] = lambda: None,
) -> Release:
    """Release posterior probabilities or quantiles of one coefficient of a regression on a table.

    `seed` is that of the partition and of the noise, which use separate streams, for a rehearsal without privacy. By
    default the partition is random, and the noise is drawn exactly with fresh entropy of the operating system. The
    cluster is as in `pipeline.run`. `confirm` is called before a release is entered in the ledger; an exception that it
    raises prevents the release.

    Privacy
    -------
    The guarantee of the method holds for each value, under replacement of one row, with public n, columns and
    partition; losses add up. Partitions without a posterior, as with collinear columns or an exact fit, have a public
    normal distribution instead. The guarantee holds over all tables of numbers, none of which is rejected because of
    its values; numbers beyond 1e140 in size count as 1e140 with their sign. Tables with missing or infinite values are
    rejected: impute them or drop their rows.
    """
    mechanism = request.mechanism()
    if seed is None:
        if not mechanism.method.is_private:
            raise BadInputError(
                f"method must be private to release real data, got {mechanism.name}; rehearse it with --seed"
            )
        with as_bad_input():
            require_opendp()
            validate_draws(mechanism)
    table = open_table(path, request.target, request.features, markers=request.markers)
    n_rows = table.rows.shape[0]
    names = ((INTERCEPT,) if request.intercept else ()) + table.columns[:-1]
    if request.coefficient not in names:
        raise BadInputError(f"{path}: {unknown_name(table.source, 'coefficient', request.coefficient, names)}")
    if names.count(INTERCEPT) > 1:
        raise BadInputError(
            f"{path} must not have a column {INTERCEPT} if the model has an intercept; use --features or --no-intercept"
        )
    prior = find_prior(request.prior, n_rows)
    if not isinstance(prior, ConjugatePrior) and n_rows // request.n_partitions < len(names):
        raise BadInputError(
            f"partitions must have at least as many rows as coefficients, {len(names)}, got {request.n_partitions:,} "
            f"partitions of {n_rows:,} rows; decrease --partitions or use --prior conjugate"
        )
    division, noise = _generators(seed, request)
    is_powered = isinstance(mechanism, PartitionQuantile)
    with as_bad_input(path):
        partition = keyed_partition(division, n_rows, request.n_partitions)
        statistics = divide_rows([table.rows], partition, request.intercept, cluster, table.columns)
        k = names.index(request.coefficient)
        posteriors = _posteriors(statistics, k, prior, request.error_variance, is_powered)
        values = _release(mechanism, request, posteriors, noise, ledger, confirm)
    if seed is not None:
        values = values.drop(columns="epsilon")
    guarantee = request.guarantee()
    return Release(
        values,
        mechanism,
        n_rows,
        guarantee,
        request.allowed_failure,
        rehearsal=seed is not None,
        question=request.question(names),
    )


def _generators(seed: int | None, request: Request) -> tuple[np.random.Generator, np.random.Generator | None]:
    """Return generators for the partition, which depends only on `seed` and M, and for the noise of a rehearsal."""
    if seed is None:
        return np.random.default_rng(), None
    later = ("ranges", "allowed_failure", "markers")  # these options do not affect the noise of a rehearsal
    asked = {key: json.dumps(value) for key, value in asdict(request).items() if key not in later}
    streams = (
        Streams(seed, "partition", "table", "division", {"n_partitions": request.n_partitions}, range(1)),
        Streams(seed, "partition", "table", "noise", asked, range(1)),
    )
    first, second = (next(stream.generators()) for stream in streams)
    return first, second


def _posteriors(
    statistics: RegressionStatistics, k: int, prior: Prior, error_variance: float | None, is_powered: bool
) -> Iterator[CoefficientPosterior]:
    """Yield the posteriors of batches of partitions; if `is_powered`, likelihoods have the power n/nⱼ."""
    n_rows = statistics.n_rows
    power = n_rows.sum() / n_rows if is_powered else np.ones(n_rows.shape)
    for start in range(0, n_rows.size, _AT_ONCE):
        batch = slice(start, start + _AT_ONCE)
        yield coefficient_posterior(statistics[batch], k, prior, error_variance, power[batch], _SUBSTITUTE)


def _release(
    mechanism: Mechanism,
    request: Request,
    posteriors: Iterable[CoefficientPosterior],
    rng: np.random.Generator | None,
    ledger: LedgerFile | None,
    confirm: Callable[[], object],
) -> pd.DataFrame:
    """Release the values; if `rng` is None, after a confirmation, with an entry in the ledger and by exact draws."""
    p = request.probabilities
    if isinstance(mechanism, PartitionProbability):
        below = np.concatenate([posterior.cdf(request.cutoffs) for posterior in posteriors])
        if rng is None:
            confirm()
            released = publish_probabilities(mechanism, below, ledger=ledger)
        else:
            released = mechanism.release(rng, below)
        return pd.DataFrame({"cutoff": request.cutoffs, "probability": released, "epsilon": mechanism.loss})
    quantiles, spreads = zip(*((posterior.quantile(p), posterior.std()) for posterior in posteriors), strict=True)
    arrays = np.concatenate(quantiles), np.concatenate(spreads)
    if rng is None:
        confirm()
        drawn = publish_quantiles(mechanism, *arrays, ledger=ledger)
    else:
        drawn = mechanism.release(rng, *arrays)
    drawn_at = np.empty(len(p), dtype=np.intp)  # the drawn value that is the quantile at each p, with all its columns
    drawn_at[np.argsort(p, kind="stable")] = np.argsort(drawn.values, kind="stable")
    centres, half_widths = drawn.centres[drawn_at], drawn.half_widths[drawn_at]
    scales = [mechanism.noise_scale(width) * mechanism.method.has_noise for width in half_widths]
    return pd.DataFrame(
        {
            "p": p,
            "quantile": drawn.values[drawn_at],
            "noise": [math.sqrt(2.0) * scale for scale in scales],
            "clipped_from": centres - half_widths,
            "clipped_to": centres + half_widths,
            "capped": drawn.capped[drawn_at],
            "epsilon": mechanism.loss,
        }
    )
