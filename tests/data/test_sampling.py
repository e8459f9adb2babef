import numpy as np
import pytest
import torch

from hf_vitgeo.data.sampling import ArrayImages, EpochSampler, EvaluationSamples, TrainingSamples
from hf_vitgeo.data.transforms import eval_transform, train_transform

HALF = ((0.5,) * 3, (0.5,) * 3)


@pytest.fixture
def source():
    rng = np.random.default_rng(0)
    return ArrayImages(rng.integers(0, 256, (20, 32, 32, 3), np.uint8), np.arange(20))


def test_augmentation_depends_on_seed_epoch_and_index_alone(source):
    samples = TrainingSamples(source, train_transform(32, *HALF, policy="autoaugment_cifar10"), seed=1)
    torch.manual_seed(7)
    first = samples[(0, 3)]["pixel_values"]
    after = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(1), after), "preparing a picture must leave the global generator alone"
    assert torch.equal(samples[(0, 3)]["pixel_values"], first)
    assert not torch.equal(samples[(1, 3)]["pixel_values"], first)
    row = samples[(2, 5)]
    assert (row["labels"], row["epoch"], row["index"]) == (5, 2, 5)


def test_each_epoch_is_another_order():
    sampler = EpochSampler(20, seed=1)
    zero = list(sampler)
    sampler.set_epoch(1)
    one = list(sampler)
    assert {key[0] for key in one} == {1} and sorted(i for _, i in one) == list(range(20))
    assert [i for _, i in zero] != [i for _, i in one]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_processes_share_a_step_and_a_resume_goes_on(world_size):
    """One step of n processes is one step of one process with an n times larger batch."""
    whole = [key for _, key in zip(range(18), EpochSampler(20, 1, batch_size=18 // 3), strict=False)]
    ranks = [EpochSampler(20, 1, 6 // world_size, rank, world_size) for rank in range(world_size)]
    shares = [list(rank) for rank in ranks]
    size = 6 // world_size
    for step in range(3):
        together = sum((share[step * size : (step + 1) * size] for share in shares), [])
        assert together == whole[step * 6 : (step + 1) * 6]
    for rank, share in zip(ranks, shares, strict=True):
        rank.set_epoch(0, skip_batches=2)
        assert list(rank) == share[2 * size :] and len(rank) == len(share) - 2 * size


def test_evaluation_sees_each_picture_once(source):
    for world_size in (1, 2, 3):
        parts = [EvaluationSamples(source, eval_transform(32, *HALF), rank, world_size) for rank in range(world_size)]
        seen = [part[i]["labels"] for part in parts for i in range(len(part))]
        assert sorted(seen) == list(range(20))
