"""How much of the classes is in a frozen feature: weighted k-NN, and a linear classifier (DINO's probes; paper C)."""

# n pictures, D width, K classes, k neighbours

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from hf_vitgeo.analysis.robustness import wilson_interval

#: Similarities that are held at once.
_CHUNK = 2**24
#: Learning rates of the sweep for 256 pictures a step: those of DINOv2's linear probe.
RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1)


def weighted_knn(
    train: Any, labels: Any, test: Any, num_classes: int, k: int = 20, temperature: float = 0.07
) -> torch.Tensor:
    """Each of the k nearest training pictures by cosine votes for its class with weight exp(cosine / temperature).

    Args:
        train: (n, D) features, numpy or torch; they need not be normalised.
        labels: (n,) integers from 0 to K - 1.
        test: (m, D) features; the search runs on their device.
        num_classes: K.
        k: neighbours (DINO: 10, 20, 100, 200; 20 was best).
        temperature: of the weights (DINO: .07).

    Returns:
        (m, K) float32, sums of weights: the largest one names the class.

    Raises:
        ValueError: for shapes that do not fit, a k outside 1 ... n, labels outside 0 ... K - 1, a temperature that is
            not above 0, or features that are not finite.
    """
    cosines, neighbours = nearest(train, test, k)
    return vote(cosines, neighbours, labels, num_classes, temperature)


def nearest(train: Any, test: Any, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k nearest training pictures of each test picture, the nearest first.

    Args:
        train: (n, D) features.
        test: (m, D) features; in chunks, so that memory does not grow with n m.
        k: from 1 to n.

    Returns:
        Cosines (m, k) float32 and row numbers (m, k) int64, on the device of `test`.

    Raises:
        ValueError: as `weighted_knn` does.
    """
    train, test = torch.as_tensor(train), torch.as_tensor(test)
    if train.ndim != 2 or test.ndim != 2 or train.shape[1] != test.shape[1]:
        raise ValueError(f"features of shapes {tuple(train.shape)} and {tuple(test.shape)} do not fit")
    if not 1 <= k <= len(train):
        raise ValueError(f"k is {k}; allowed is a whole number from 1 to the {len(train)} training pictures")
    bank = _unit(train.to(test.device)).T
    found = []
    for queries in test.split(max(1, _CHUNK // len(train))):
        found.append(torch.topk(_unit(queries) @ bank, k, dim=1))
    cosines, neighbours = ([each[place] for each in found] for place in (0, 1))
    if not found:
        return test.new_zeros((0, k)), torch.zeros((0, k), dtype=torch.long)
    return torch.cat(cosines), torch.cat(neighbours)


def _unit(features: torch.Tensor) -> torch.Tensor:
    features = features.float()
    if not features.isfinite().all():
        raise ValueError("features are not finite")
    return nn.functional.normalize(features, dim=1)


def vote(
    cosines: torch.Tensor, neighbours: torch.Tensor, labels: Any, num_classes: int, temperature: float
) -> torch.Tensor:
    """Sum up the weights of the neighbours by class.

    Args:
        cosines: (m, k).
        neighbours: (m, k) row numbers.
        labels: (n,) of the training pictures.
        num_classes: K.
        temperature: of the weights.

    Returns:
        (m, K) float32.

    Raises:
        ValueError: for labels outside 0 ... K - 1, or a temperature that is not above 0.
    """
    labels = torch.as_tensor(np.asarray(labels), device=cosines.device).long()
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; allowed is a number above 0")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(
            f"labels are from {int(labels.min())} to {int(labels.max())}; there are {num_classes} classes"
        )
    scores = cosines.new_zeros((len(cosines), num_classes))
    return scores.scatter_add_(1, labels[neighbours], (cosines / temperature).exp())


def knn_records(
    train: Any,
    labels: Any,
    test: Any,
    test_labels: Any,
    num_classes: int,
    ks: Sequence[int],
    temperature: float = 0.07,
) -> list[dict[str, Any]]:
    """Accuracy of weighted k-NN for several k, with one search for all of them.

    Args:
        train: (n, D) features.
        labels: (n,) integers.
        test: (m, D) features.
        test_labels: (m,) integers.
        num_classes: K.
        ks: numbers of neighbours.
        temperature: of the weights.

    Returns:
        A record of `knn_accuracy` for each k, with Wilson's interval over the test pictures.

    Raises:
        ValueError: as `weighted_knn` does.
    """
    cosines, neighbours = nearest(train, test, max(ks))
    truth, rows = torch.as_tensor(np.asarray(test_labels)), []
    for k in ks:
        scores = vote(cosines[:, :k], neighbours[:, :k], labels, num_classes, temperature)
        right = (scores.argmax(dim=1).cpu() == truth).numpy()
        rows.append(accuracy_record("knn_accuracy", right, f"k={k}, temperature={temperature:g}"))
    return rows


def accuracy_record(metric: str, right: np.ndarray, probe: str) -> dict[str, Any]:
    """A record of an accuracy of a probe.

    Args:
        metric: such as `knn_accuracy`.
        right: (m,) bool, by picture.
        probe: the probe's settings.

    Returns:
        The record, without the fields that name model and data.
    """
    low, high = wilson_interval(int(right.sum()), len(right))
    return {
        "metric": metric,
        "probe": probe,
        "value": right.mean(),
        "spread": {"kind": "interval95", "low": low, "high": high},
        "n_images": len(right),
    }


@dataclass(frozen=True)
class LinearProbe:
    """What came of one learning rate.

    Attributes:
        rate: for 256 pictures a step.
        held_out_accuracy: on the training pictures that no classifier saw; the rate is chosen by it.
        right: (m,) bool, of the test pictures.
    """

    rate: float
    held_out_accuracy: float
    right: np.ndarray


def linear_probe(
    train: np.ndarray,
    labels: np.ndarray,
    test: np.ndarray,
    test_labels: np.ndarray,
    num_classes: int,
    rates: Sequence[float] = RATES,
    epochs: int = 100,
    batch_size: int = 1024,
    held_out: float = 0.1,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Callable[[], Any] = lambda: None,
) -> list[LinearProbe]:
    """A linear classifier for each learning rate, all trained at once on the same batches.

    SGD with momentum .9, no weight decay, half a cosine to 0, weights N(0, .01), 100 epochs of batches of 1024: DINO's
    protocol (PROTOCOLS C.2), but on one feature of each picture instead of random crops, so that features are computed
    once. A seeded share of the training pictures is held out to choose the rate; DINO takes the best on the test set.

    Args:
        train: (n, D) features; may be mapped from a file.
        labels: (n,) integers.
        test: (m, D) features.
        test_labels: (m,) integers.
        num_classes: K.
        rates: learning rates for 256 pictures a step.
        epochs: passes over the training pictures.
        batch_size: pictures a step.
        held_out: share of the training pictures, at least one of them.
        seed: of the split, the weights and the order.
        device: where to train.
        progress: called after each epoch.

    Returns:
        One result a rate, the one with the best held-out accuracy first (of equal ones the smaller rate).

    Raises:
        ValueError: for fewer than two training pictures, no rate, or numbers out of range.
    """
    if len(train) < 2 or not rates or epochs < 1 or batch_size < 1 or not 0 < held_out < 1:
        raise ValueError(
            f"a linear probe needs two pictures, a rate, an epoch, a batch and a share in (0, 1) to hold out; got "
            f"{len(train)}, {list(rates)}, {epochs}, {batch_size}, {held_out}"
        )
    order = np.random.default_rng(seed).permutation(len(train))
    cut = max(1, round(held_out * len(train)))
    kept_out, used = np.sort(order[:cut]), np.sort(order[cut:])
    batch_size = min(batch_size, len(used))
    generator = torch.Generator().manual_seed(seed)
    heads = nn.ModuleList([nn.Linear(train.shape[1], num_classes) for _ in rates])
    for head in heads:
        nn.init.normal_(head.weight, std=0.01, generator=generator)  # type: ignore[arg-type]
        nn.init.zeros_(head.bias)  # type: ignore[arg-type]
    heads.to(device)
    groups = [
        {"params": head.parameters(), "lr": rate * batch_size / 256} for head, rate in zip(heads, rates, strict=True)
    ]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    steps = epochs * (len(used) // batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(epochs):
        shuffled = used[np.random.default_rng((seed, epoch)).permutation(len(used))]
        for start in range(0, len(used) - batch_size + 1, batch_size):
            rows = shuffled[start : start + batch_size]
            features, targets = _on(device, train, labels, rows)
            # of one rate the loss is a mean; the sum keeps the gradients of the others out of it
            loss = sum(nn.functional.cross_entropy(head(features), targets) for head in heads)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[union-attr]
            optimizer.step()
            schedule.step()
        progress()
    held = _right(heads, device, train, labels, kept_out, batch_size)
    right = _right(heads, device, test, test_labels, np.arange(len(test)), batch_size)
    found = [LinearProbe(rate, float(a.mean()), b) for rate, a, b in zip(rates, held, right, strict=True)]
    return sorted(found, key=lambda each: (-each.held_out_accuracy, each.rate))


def _on(device: Any, features: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(features[rows]).to(device), torch.from_numpy(np.asarray(labels)[rows]).long().to(device)


@torch.no_grad()
def _right(
    heads: nn.ModuleList, device: Any, features: np.ndarray, labels: np.ndarray, rows: np.ndarray, batch_size: int
) -> list[np.ndarray]:
    """Which pictures each head classifies rightly."""
    found: list[list[torch.Tensor]] = [[] for _ in heads]
    for start in range(0, len(rows), batch_size):
        inputs, targets = _on(device, features, labels, rows[start : start + batch_size])
        for head, into in zip(heads, found, strict=True):
            into.append((head(inputs).argmax(dim=1) == targets).cpu())
    return [torch.cat(each).numpy() for each in found]
