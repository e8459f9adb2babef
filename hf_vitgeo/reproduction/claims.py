"""The claims of the papers and what the runs of a grid say of them. No torch."""

from collections.abc import Sequence

from hf_vitgeo.reporting.grids import Runs
from hf_vitgeo.reporting.tables import Row
from hf_vitgeo.reporting.verdicts import short
from hf_vitgeo.reproduction.claims_a import claims_of_paper_a
from hf_vitgeo.reproduction.claims_b import claims_of_paper_b
from hf_vitgeo.reproduction.statistics import Claim, Condition


def claims_of(paper: str, runs: Runs) -> list[Claim]:
    """Judge every claim of a paper.

    Args:
        paper: "A" or "B".
        runs: of a grid, by cell and seed.

    Returns:
        The claims, in the order of the paper.
    """
    return claims_of_paper_a(runs) if paper == "A" else claims_of_paper_b(runs)


def claims_table(claims: Sequence[Claim]) -> list[Row]:
    """One row a condition, the claim and its verdict in the first of its rows.

    Args:
        claims: as judged.

    Returns:
        Rows of ready text. The interval is Student's t over seeds, 95 %.
    """
    rows = []
    for claim in claims:
        for place, condition in enumerate(claim.conditions):
            first = place == 0
            reason = f" ({claim.reason})" if claim.reason else ""
            rows.append(
                {
                    "claim": f"{claim.name}: {claim.statement} {claim.note}".strip() if first else "",
                    "verdict": f"{claim.verdict}{reason}" if first else "",
                    "number": condition.what,
                    "claimed": _claimed(condition),
                    "ours": short(condition.mean, 3) if condition.mean == condition.mean else "–",
                    "95 % interval": "–" if condition.interval is None else _interval(condition.interval),
                    "seeds": str(condition.seeds),
                    "paper": short(condition.paper, 3),
                }
            )
    return rows


def _claimed(condition: Condition) -> str:
    if condition.relation == "within":
        return f"within ±{short(condition.bound)}"
    return f"{condition.relation} {short(condition.bound)}" if condition.bound else f"{condition.relation} 0"


def _interval(ends: tuple[float, float]) -> str:
    return f"{short(ends[0], 3)} to {short(ends[1], 3)}"
