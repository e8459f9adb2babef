"""How local are the heads? Mean attention distance, entropy and support of each head (papers B and C)."""

from typing import Any

#: What the recorder measures of each head, by the names of the results.
HEAD_METRICS = (
    "mean_attention_distance",
    "mean_attention_distance_patches",
    "mean_attention_distance_unnormalized",
    "mean_attention_distance_no_self",
    "attention_entropy",
    "attention_support",
    "patch_mass",
    "dropped_row_share",
)


def head_records(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """One record for each measure, layer and head.

    Args:
        recorded: result of `record` with `attentions`.

    Returns:
        Records without the fields that name model and data. A head that gives no patch any mass has a null value.
    """
    return [
        {
            "metric": metric,
            "layer": layer,
            "head": head,
            "value": value,
            "reason": None if value == value else "no query of this head gives the patches more than 1e-6 of its mass",
        }
        for metric in HEAD_METRICS
        for layer, heads in enumerate(recorded[metric])
        for head, value in enumerate(heads)
    ]
