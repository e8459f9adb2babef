"""The papers' models by name: fields of `ViTGeoConfig` that differ from its defaults."""

from typing import Any

#: Sources: PROTOCOLS A.2 and A.3, B.2, C.2 of the project's design notes.
PRESETS: dict[str, dict[str, Any]] = {
    # Paper A, ViT-S/16: 8 heads, dropouts .15, drop path .2 on the ramp i r / L, [CLS] and table N(0, 1), no final
    # norm.
    "vit_s16_paper_a": {
        "num_attention_heads": 8,
        "hidden_dropout_prob": 0.15,
        "attention_probs_dropout_prob": 0.15,
        "position_dropout_prob": 0.15,
        "drop_path_rate": 0.2,
        "drop_path_ramp": "open",
        "use_final_layernorm": False,
        "position_init_std": 1.0,
        "cls_init_std": 1.0,
    },
    # Paper B's compact ViT on 32x32: 2,417,956 parameters with 100 classes, so the MLP ratio is 2.
    "vit_compact_paper_b": {
        "hidden_size": 192,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "intermediate_size": 384,
        "image_size": 32,
        "patch_size": 4,
    },
    # DINO's ViT-S/16, the backbone of paper C: the defaults, and stochastic depth of the student.
    "vit_s16_dino": {"drop_path_rate": 0.1},
    # For tests and first tries: 64 tokens of width 32.
    "tiny": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 4,
    },
}
