"""Keys of a config that its class knows under two names."""

from pathlib import Path

import pytest

from dispersion.architectures import plan
from dispersion.architectures.aliases import ALIASES
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError

DATA = Path(__file__).parent / "data"


def planned(name, changes, drop=()):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    config = {k: v for k, v in checkpoint.config.items() if k not in drop}
    return plan(from_arrays(arrays, config | changes))


def config_of(name):
    return open_checkpoint(DATA / name).config


def test_every_family_with_other_names_has_a_golden_checkpoint():
    assert all((DATA / name).is_dir() for name in ALIASES)


PAIRS = [(name, other, own) for name, found in ALIASES.items() for other, own in found.items()]


@pytest.mark.parametrize(("name", "other", "own"), PAIRS)
def test_both_names_stand_for_one_value(name, other, own):
    config = config_of(name)
    value = config.get(own, config.get(other))
    usual = planned(name, {own: value}, drop=(other,))
    both, alone = {own: value, other: value}, {other: value}
    for found in (planned(name, both), planned(name, alone, drop=(own,))):
        assert found.model["max_positions"] == usual.model["max_positions"]
        assert [x.module for x in found.layers] == [x.module for x in usual.layers]
        assert [x.query_heads for x in found.layers] == [x.query_heads for x in usual.layers]
        windows = [[next(iter(x.heads()))[2].window for x in p.layers] for p in (found, usual)]
        assert windows[0] == windows[1]
    # The class takes the last of the two, which no reader of a file should have to know.
    with pytest.raises(CheckpointError, match=f"{other} in config.json must agree with {own}"):
        planned(name, {own: value, other: 2 * value})
