"""Adversarial shifts: each picture changed by at most eps so that the model errs (FGSM, PGD), by the ART library."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hf_vitgeo.analysis.recorder import evaluating
from hf_vitgeo.analysis.samples import Sample
from hf_vitgeo.data.shifts import Attack


class _Logits(torch.nn.Module):
    """Pictures in [0, 1] to logits: the normalisation is part of what is attacked."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, model: Any, sample: Sample):
        super().__init__()
        self.model = model
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(getattr(sample, name), dtype=torch.float32).view(3, 1, 1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """(B, 3, height, width) in [0, 1] -> (B, classes)."""
        return self.model((pixels - self.mean) / self.std).logits


def attacked(model: Any, sample: Sample, attack: Attack, seed: int = 0) -> Sample:
    """The same pictures, attacked, as 8-bit pictures: what one could store and send is what is measured.

    Args:
        model: a classifier; its weights stay as they are.
        sample: pictures with labels. The labels are what the attack leads away from.
        attack: see `data.shifts.parse_attack`. PGD takes steps of eps / 4 from one random start (Madry et al. 2018).
        seed: of that start.

    Returns:
        A sample whose channels differ from the given ones by at most eps 255ths.

    Raises:
        ImportError: without the adversarial-robustness-toolbox.
    """
    try:
        from art.attacks.evasion import FastGradientMethod, ProjectedGradientDescent
        from art.estimators.classification import PyTorchClassifier
    except ImportError as error:
        raise ImportError("attacks run on the adversarial-robustness-toolbox: pip install it") from error
    device = next(model.parameters()).device
    classifier = PyTorchClassifier(
        model=_Logits(model, sample).to(device),
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=(3, *sample.images.shape[1:3]),
        nb_classes=model.config.num_labels,
        clip_values=(0.0, 1.0),
        device_type="cpu" if device.type == "cpu" else "gpu",
    )
    eps = attack.eps / 255
    common: dict[str, Any] = {"eps": eps, "batch_size": sample.batch_size}
    if attack.kind == "fgsm":
        method = FastGradientMethod(classifier, **common)
    else:
        steps = {"eps_step": eps / 4, "max_iter": attack.steps, "num_random_init": 1, "verbose": False}
        method = ProjectedGradientDescent(classifier, **common, **steps)
    state = np.random.get_state()
    np.random.seed(seed)  # ART draws its starts from numpy's global state
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        with evaluating(model):
            # weights need no gradient: only that of the pictures is wanted
            for parameter in frozen:
                parameter.requires_grad_(False)
            # (n, h, w, 3) -> (n, 3, h, w)
            pixels = sample.images.transpose(0, 3, 1, 2).astype(np.float32) / 255
            found = method.generate(x=pixels, y=sample.labels)
    finally:
        np.random.set_state(state)
        for parameter in frozen:
            parameter.requires_grad_(True)
    return replace(sample, images=np.rint(found * 255).astype(np.uint8).transpose(0, 2, 3, 1))
