"""Where a split is opened: a Hub id, a folder of pictures or tables, or what `save_to_disk` wrote."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets


def open_split(name_or_path: str | os.PathLike, split: str, streaming: bool = False) -> Any:
    """Open one split of a data set.

    Args:
        name_or_path: a Hub id, or a local folder. What exists on this machine, begins with ".", "/" or "~", or is a
            `Path`, is local.
        split: name of the split.
        streaming: open it without loading it.

    Returns:
        A `datasets.Dataset`, or an `IterableDataset` with known features for `streaming`.

    Raises:
        FileNotFoundError: for a local folder that does not exist or holds no data.
        NotADirectoryError: for a local file.
        ConnectionError: for a Hub id that is neither cached nor within reach.
        ValueError: for an unknown split; it lists those that there are.
    """
    path = Path(name_or_path).expanduser()
    is_local = isinstance(name_or_path, os.PathLike) or str(name_or_path).startswith((".", "/", "~")) or path.exists()
    if not is_local:
        try:
            return _fetch_split(str(name_or_path), split, str(name_or_path), streaming)
        except ConnectionError as error:
            raise ConnectionError(
                f"{name_or_path!r} is no folder on this machine, is not in the cache of Hub data sets, and the Hub is "
                "out of reach. Give a local folder, or load it once with a network and HF_HUB_OFFLINE unset"
            ) from error
    if not path.exists():
        raise FileNotFoundError(f"data set folder {str(name_or_path)!r} does not exist")
    if not path.is_dir():
        raise NotADirectoryError(f"data set {str(name_or_path)!r} is a file: give the folder that holds the data")
    if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
        saved = _saved_split(path, split)
        return saved.to_iterable_dataset() if streaming else saved
    # Absolute, because a folder named "parquet" or "csv" would be taken for the reader of that name.
    return _fetch_split(str(path.resolve()), split, str(name_or_path), streaming)


def _fetch_split(source: str, split: str, name: str, streaming: bool) -> Any:
    import datasets

    try:
        opened = datasets.load_dataset(source, split=split, streaming=streaming)
        # some formats say nothing of their columns before the first row
        return opened._resolve_features() if streaming and opened.features is None else opened
    except ValueError as error:
        # datasets lists the splits there are, but does not say of which data set.
        raise ValueError(f"{name}: {error}") from error


def _saved_split(path: Path, split: str) -> "datasets.Dataset":
    """Read what `save_to_disk` wrote: a DatasetDict, or one Dataset that may know which split it is."""
    import datasets

    try:
        saved = datasets.load_from_disk(str(path))
    except IndexError as error:
        # datasets 5.2 writes a split without rows, but cannot read it again.
        raise ValueError(f"{path} holds an empty split") from error
    if isinstance(saved, datasets.Dataset):
        saved = datasets.DatasetDict({str(saved.split or split): saved})
    if split not in saved:
        raise ValueError(f"{path}: no split {split!r}; there are {', '.join(map(repr, saved))}")
    return saved[split]
