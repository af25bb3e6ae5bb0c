"""Posteriors by foreign methods for binomial records with Laplace noise: worked examples of the kind ``posterior``.

`METROPOLIS` is a random walk on the marginal likelihood, `ABC` rejects simulated releases, `PROGRAM` is another process
that reads JSON on its standard input and writes draws, as one in R or Julia would. `NARROW` is over-confident: its
posterior has .6 times the right standard deviation.
"""

import json
import subprocess
import sys

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from mechanisms.inference.exact_posterior import exact_posterior
from studies import OwnMethod


def is_binomial(cell):
    return cell["family"] == "binomial" and cell.get("noise", "laplace") == "laplace"


def walk(rng, model, prior, y):
    """Return 4 chains by random-walk Metropolis steps in the log odds, shape (4, 200)."""
    (a, b), s = prior, np.arange(model.n + 1)
    log_weights = -gammaln(s + 1) - gammaln(model.n - s + 1) - abs(y[0] - s) / model.noise.scale

    def log_density(theta):
        """Return the log density of the log odds of θ, shape (4,), by a sum over all counts."""
        sums = np.logaddexp.reduce(xlogy(s, theta[:, None]) + xlog1py(s[::-1], -theta[:, None]) + log_weights, axis=1)
        return sums + a * np.log(theta) + b * np.log1p(-theta)

    odds = rng.normal(size=4)
    states, density = [], np.full(4, -np.inf)
    for _ in range(250):
        proposed = odds + rng.normal(size=4)
        theta = 1 / (1 + np.exp(-proposed))
        proposed_density = log_density(theta)
        accepted = np.log(rng.random(4)) < proposed_density - density
        odds, density = np.where(accepted, proposed, odds), np.where(accepted, proposed_density, density)
        states.append(1 / (1 + np.exp(-odds)))
    return np.transpose(states[50:])


def reject(rng, model, prior, y):
    """Return parameters whose simulated count is accepted with probability exp(-|y - s|/b), which is exact."""
    kept = np.empty(0)
    while kept.size < 400:
        theta = rng.beta(*prior, 20_000)
        s = rng.binomial(model.n, theta)
        kept = np.append(kept, theta[rng.random(theta.size) < np.exp(-np.abs(y[0] - s) / model.noise.scale)])
    return kept


SCRIPT = """
import json, math, random, sys
task = json.load(sys.stdin)
random.seed(task["seed"])
(a, b), n = task["prior"], task["n"]
def log_weight(s):
    choose = math.lgamma(a + s) + math.lgamma(b + n - s) - math.lgamma(s + 1) - math.lgamma(n - s + 1)
    return choose - abs(task["y"] - s) / task["scale"]
logs = [log_weight(s) for s in range(n + 1)]
weights = [math.exp(value - max(logs)) for value in logs]
counts = random.choices(range(n + 1), weights, k=400)
print(json.dumps([random.betavariate(a + s, b + n - s) for s in counts]))
"""


def call(rng, model, prior, y, script=SCRIPT, seconds=60.0):
    """Return the draws of a program that reads the problem and a seed as JSON."""
    task = {
        "seed": int(rng.integers(2**31)),
        "prior": prior,
        "n": model.n,
        "scale": model.noise.scale,
        "y": float(y[0]),
    }
    ran = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(task), capture_output=True, text=True, timeout=seconds
    )
    if ran.returncode:
        raise RuntimeError(f"the program failed: {ran.stderr.strip().splitlines()[-1]}")
    return json.loads(ran.stdout)


def narrow(rng, model, prior, y):
    posterior = exact_posterior(model, prior, y)
    return posterior.mean() + 0.6 * (posterior.sample(rng, 500) - posterior.mean())


METROPOLIS = OwnMethod("metropolis", "posterior", walk, is_binomial, chains=True)
ABC = OwnMethod("abc", "posterior", reject, is_binomial)
PROGRAM = OwnMethod("program", "posterior", call, is_binomial)
NARROW = OwnMethod("narrow", "posterior", narrow, is_binomial)
