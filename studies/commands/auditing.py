"""The command ``audit``."""

from typing import Annotated

import typer

from studies.commands.options import argument, option
from studies.option_texts import parse_numbers
from studies.output import print_table, say


def audit(
    mechanism: Annotated[
        list[str],
        argument(
            "MECHANISM",
            "A registered name, 'all', or module:object or file.py:object of a mechanisms.Mechanism or "
            "mechanisms.OutputDistributions. Distributions have their own data sets; they are compared with --epsilon "
            "and --delta.",
        ),
    ],
    epsilon: Annotated[float, option("Privacy loss, in nats.")],
    prior: Annotated[
        str | None, option("A1:A2", "Dirichlet parameters of the prior; not used by distributions.")
    ] = None,
    n: Annotated[int | None, option("Number of records; not used by distributions.")] = None,
    delta: Annotated[
        float | None,
        option("Delta of (epsilon, delta)-DP; by default 1e-8 for mechanisms with a delta, and 0 for distributions."),
    ] = None,
    at: Annotated[str, option("E1,E2", "Also show delta at these values of epsilon.")] = "",
    order: Annotated[
        str,
        option("L1,L2", "Also show divergences of these Rényi orders; Rényi mechanisms are calibrated at the first."),
    ] = "",
    relation: Annotated[
        str, option("NAME", "Neighbouring data sets: replace-one, or add-remove if the number of records is private.")
    ] = "replace-one",
) -> None:
    """Compare exact privacy losses of mechanisms with their guarantees.

    The losses are the largest ones over all neighbours. If a guarantee of released counts holds, draws are compared
    with the stated distribution at several data sets. Draws that do not follow it are BROKEN.
    """
    from mechanisms.core.privacy import RELATIONS
    from mechanisms.core.privacy_parameters import describe_large_delta
    from pipeline.errors import BadInputError, unknown
    from studies.audits import Question, audit_named, tabulate_audits

    alpha = parse_numbers("prior", prior, "vector") if prior else None
    epsilons, orders = parse_numbers("at", at), parse_numbers("order", order)
    if relation not in RELATIONS:
        raise BadInputError(unknown("relation", relation, RELATIONS))
    question = Question(alpha, n, epsilon, delta, epsilons, orders, RELATIONS[relation])
    audited, left_out = audit_named(mechanism, question)
    heads, rows = tabulate_audits(audited, question)
    if rows:
        print_table(heads, rows)
    for reason in left_out:
        say(f"omitted: {reason}")
    for audit_result in audited:
        say(f"{audit_result.name}: {audit_result.evidence}")
    for compared in dict.fromkeys(audit_result.compared.relation for audit_result in audited):
        say(f"neighbours: {compared.value}")
    if large := describe_large_delta(delta or 0.0, n):
        say(f"warning: {large}")
    n_broken = sum(not audit_result.holds for audit_result in audited)
    say(f"audited: {len(audited)}, broken: {n_broken}")
    raise typer.Exit(1 if n_broken else 0)
