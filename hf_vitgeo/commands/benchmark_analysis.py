"""The benchmark of the measures: streamed as `analyze` does, and from stored maps and hidden states as one would."""

from collections.abc import Iterator
from typing import Any

from hf_vitgeo.commands.benchmark_cases import Call, Case

GRID = (14, 14)
LAYERS = 12
LOOP = "scipy's spearmanr in a loop"


def ssdt_by_picture() -> Iterator[Case]:
    """SSDT of each of 256 pictures in 12 layers.

    Yields:
        One case.
    """
    import numpy as np

    from hf_vitgeo.metrics.ssdt.pure import ssdt

    tokens = np.random.default_rng(0).standard_normal((256, 196, 16)).astype(np.float32)
    tokens /= np.linalg.norm(tokens, axis=-1, keepdims=True)
    similarity = tokens @ tokens.transpose(0, 2, 1)
    correlation = _scipy_ssdt()

    def loop() -> Any:
        return [correlation(each) for _ in range(LAYERS) for each in similarity]

    calls = {LOOP: loop, "ours": lambda: [ssdt(similarity, GRID) for _ in range(LAYERS)]}
    yield Case(f"SSDT by picture, {LAYERS} layers x 256 pictures x 196 tokens", calls, LOOP)


def _scipy_ssdt() -> Any:
    """SSDT of a matrix (N, N) as one would write it with scipy."""
    import numpy as np
    from scipy.stats import spearmanr

    from hf_vitgeo.metrics.ssdt.pure import grid_distance

    upper = np.triu_indices(GRID[0] * GRID[1], 1)
    minus_distance = -grid_distance(GRID)[upper]
    return lambda similarity: spearmanr(similarity[upper], minus_distance).statistic


def _model(device: Any) -> Any:
    """A ViT with 12 layers and 196 tokens, small enough that the measures and not the products rule the time."""
    from hf_vitgeo.models import ViTGeoConfig, ViTGeoModel

    shape: dict[str, Any] = {"hidden_size": 192, "num_hidden_layers": LAYERS, "num_attention_heads": 6}
    config = ViTGeoConfig(**shape, intermediate_size=384, image_size=56, patch_size=4)
    config._attn_implementation = "eager"
    return ViTGeoModel(config).to(device).eval()


def heads(device: Any) -> Iterator[Case]:
    """MAD and entropy of every head: time, and memory for 32 and for 64 pictures.

    Args:
        device: torch device.

    Yields:
        A case for each number of pictures.
    """
    import torch

    from hf_vitgeo.analysis.recorder import record

    model = _model(device)
    for count in (32, 64):
        batches = list(torch.randn(count, 3, 56, 56).split(16))

        def stored(batches: Any = batches) -> Any:
            with torch.no_grad():
                passes = [model(batch.to(device), output_attentions=True).attentions for batch in batches]
            return _locality(passes)

        def streamed(batches: Any = batches) -> Any:
            return record(model, batches, per_image=False)

        calls: dict[str, Call] = {"stored maps, then numpy": stored, "ours, streamed": streamed}
        title = f"MAD and entropy, {LAYERS} layers, {count} pictures, 196 tokens"
        yield Case(title, calls, "stored maps, then numpy", count, memory=True)


def _locality(passes: Any) -> list[Any]:
    """MAD and entropy (heads,) of each layer from stored maps: a batch's tuple of (B, H, T, T) a layer."""
    import numpy as np

    from hf_vitgeo.metrics.mad.pure import attention_entropy, mean_attention_distance

    maps = [np.concatenate([each[layer].cpu().numpy() for each in passes]) for layer in range(LAYERS)]
    return [(mean_attention_distance(each, GRID, 1).mean(0), attention_entropy(each, 1).mean(0)) for each in maps]


def whole_pass(device: Any) -> Iterator[Case]:
    """SSDT of the mean and of each picture, every head, and SSDT under 4 permutations, of 64 pictures.

    Args:
        device: torch device.

    Yields:
        One case.
    """
    import numpy as np
    import torch

    from hf_vitgeo.analysis.recorder import record
    from hf_vitgeo.analysis.samples import Sample
    from hf_vitgeo.analysis.spatial_structure import permutations, ssdt_under_rpi

    model, correlation = _model(device), _scipy_ssdt()
    images = np.random.default_rng(0).integers(0, 256, (64, 56, 56, 3), np.uint8)
    sample = Sample(images, np.zeros(64, np.int64), "random", "test", (0.5,) * 3, (0.5,) * 3, 16)

    def similarity(hidden: Any) -> Any:
        tokens = torch.nn.functional.normalize(hidden[:, 1:], dim=-1)
        return (tokens @ tokens.transpose(1, 2)).numpy()  # (B, T, D) -> (B, N, N)

    def naive() -> Any:
        found = []
        for permutation in (None, *permutations(196, 4, 0)):
            plain = permutation is None
            with torch.no_grad():
                passes = [
                    model(
                        batch.to(device),
                        token_permutation=permutation,
                        output_hidden_states=True,
                        output_attentions=plain,
                    )
                    for batch in sample.batches()
                ]
            for layer in range(LAYERS + 1):
                each = similarity(torch.cat([one.hidden_states[layer].cpu() for one in passes]))
                found.append(correlation(each.mean(0)))
                found += [correlation(one) for one in each] if plain else []
            found += _locality([one.attentions for one in passes]) if plain else []
        return found

    def streamed() -> Any:
        return record(model, sample.batches()), ssdt_under_rpi(model, sample, 4)

    calls: dict[str, Call] = {"stored, then a loop": naive, "ours, streamed": streamed}
    title = f"the whole analysis, {LAYERS} layers, 64 pictures, 196 tokens, 4 permutations"
    yield Case(title, calls, "stored, then a loop", 64, memory=True)
