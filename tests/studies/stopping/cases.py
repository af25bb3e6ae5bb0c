"""Case of the study of stopping rules."""

from tests.studies.case import Case, Flip, change

_AT_MINIMUM = {"rule": "fixed-width", "minimum": 100}
_LOSING = {"rule": "fixed-width", "minimum": 2}
_SEQUENCE = {"rule": "confidence-sequence", "minimum": 100}
_RARE = {**_AT_MINIMUM, "distribution": "bernoulli-1%"}
_BY_SKEWNESS = {"rule": "by-skewness"}
_BY_ERROR = {"rule": "by-error"}
_EXACT = {"covered_mcse": 0.001, "deviation_sd": 1.0, "deviation_mcse": 0.001}


def _set(claim, verdict, where, panel="coverage", **values):
    return Flip({claim: verdict}, change(panel, where, **values))


def _set_skewed(claim, verdict, where, covered, bias):
    return _set(claim, verdict, where, "skewed", covered_mean=covered, deviation_mean=bias, **_EXACT)


FIXED_WIDTH_STOPPING = Case(
    run={"trials": {"coverage": 2000, "skewed": 100}, "values": {"needed": [200]}},
    dims={
        "coverage": {"covered lost draws status": "distribution needed minimum rule trial"},
        "skewed": {"covered deviation draws status": "distribution needed rule trial"},
    },
    methods={"coverage": "fixed-width fixed-size confidence-sequence", "skewed": "by-skewness by-error"},
    verdicts={"two-draws-lose-coverage": "passed", "rare-events-need-more": "passed"},
    flips=(
        _set("minimum-keeps-coverage", "passed", _AT_MINIMUM, lost_mean=0.0, lost_mcse=0.001),
        _set("minimum-keeps-coverage", "failed", _AT_MINIMUM, lost_mean=0.05, lost_mcse=0.001),
        _set("minimum-keeps-coverage", "undecided", _AT_MINIMUM, lost_mean=0.01, lost_mcse=0.01),
        _set("two-draws-lose-coverage", "failed", _LOSING, lost_mean=-0.05, lost_mcse=0.001),
        _set("rare-events-need-more", "failed", _RARE, lost_mean=-0.05, lost_mcse=0.001),
        _set("sequence-holds-at-all-sizes", "passed", _SEQUENCE, covered_mean=0.96, covered_mcse=0.001),
        _set("sequence-holds-at-all-sizes", "failed", _SEQUENCE, covered_mean=0.9, covered_mcse=0.001),
        _set("sequence-is-asymptotic", "passed", _SEQUENCE, covered_mean=0.9, covered_mcse=0.001),
        _set("sequence-is-asymptotic", "failed", _SEQUENCE, covered_mean=0.97, covered_mcse=0.001),
        _set_skewed("skewness-keeps-coverage", "passed", _BY_SKEWNESS, 0.95, 0.1),
        _set_skewed("skewness-keeps-coverage", "failed", _BY_SKEWNESS, 0.9, 0.1),
        _set_skewed("skewness-keeps-coverage", "failed", _BY_SKEWNESS, 0.95, -0.4),
        _set_skewed("skewness-keeps-coverage", "undecided", _BY_SKEWNESS, 0.95, 0.25),
        _set_skewed("error-alone-loses-coverage", "passed", _BY_ERROR, 0.85, -0.4),
        _set_skewed("error-alone-loses-coverage", "failed", _BY_ERROR, 0.96, -0.4),
        _set_skewed("error-alone-loses-coverage", "failed", _BY_ERROR, 0.85, 0.1),
        _set_skewed("heavy-tails-lose-coverage", "passed", _BY_SKEWNESS, 0.92, 0.0),
        _set_skewed("heavy-tails-lose-coverage", "failed", _BY_SKEWNESS, 0.96, 0.0),
        _set("sequence-is-asymptotic", "undecided", _SEQUENCE, covered_mean=0.949, covered_mcse=0.001),
    ),
    refused={
        "": {
            "distribution=cauchy": "unknown distribution 'cauchy'; allowed: normal",
            "needed=50": "needed must be an integer >= 100",
            "minimum=1": "minimum must be in 2 ... 100",
        }
    },
)

CASES = {"fixed-width-stopping": FIXED_WIDTH_STOPPING}
