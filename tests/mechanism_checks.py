"""Checks of certificates against what ascent reached on the real modules, for mutants to fail."""

import json
import math
from pathlib import Path

import numpy as np

from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import open_checkpoint
from dispersion.position_bias import BoundedBias, LinearBias
from dispersion.sinusoid_bias import SinusoidBias
from dispersion.verdict import Target

DATA = Path(__file__).parent / "data"
# The reached values come from float64 arithmetic on some hundred terms of a row.
ROUNDING = 2.0**-40
# Modules that read token plus position, which no norm caps, by their number in golden/places.py.
UNBOUNDED = {
    ("opt__postnorm", 0),
    ("fsmt", 0),
    ("fsmt", 1),
    ("openai_gpt", 0),
    ("marian", 0),
    ("marian", 1),
    ("blenderbot_small", 1),
    ("layoutlmv3", 0),
}


def reached(name):
    """(length, layer, head, spread) of everything that ascent recorded for a checkpoint."""
    record = json.loads((DATA / name / "adversarial.json").read_text())
    for h in record["heads"]:
        for n, spread in h["spread"].items():
            yield int(n), h["layer"], h["head"], spread


def certified(name, offsets="free"):
    """By length, layer and head: the result of `check_head`."""
    lengths = sorted({n for n, *_ in reached(name)})
    found = {}
    for layer in plan(open_checkpoint(DATA / name)).layers:
        for index, _, head in layer.heads():
            for n in lengths:
                found[n, layer.layer, index] = check_head(head, [Target(n)], offsets=offsets)
    return found


def check_reached(name, offsets="free"):
    """No bound lies below what was reached; witnesses lie below the bounds."""
    found = certified(name, offsets)
    for n, layer, head, spread in reached(name):
        result = found[n, layer, head]
        assert result.spread.upper >= spread * (1 - ROUNDING), (n, layer, head)
        assert result.paper_spread >= spread * (1 - ROUNDING), (n, layer, head)


def check_contexts(name):
    """No ceiling lies below the coefficient of a recorded context."""
    record = json.loads((DATA / name / "adversarial.json").read_text())
    found = certified(name)
    for context in record["witnesses"]:
        result = found[len(context["order"]), context["layer"], context["head"]].results[0]
        assert context["coefficient"] <= result.ceiling.upper * (1 + ROUNDING)


def check_all(name, offsets="free"):
    check_reached(name, offsets)
    check_contexts(name)


def heads(name):
    """The first head of every layer."""
    return [next(iter(layer.heads()))[2] for layer in plan(open_checkpoint(DATA / name)).layers]


def unknown_inputs(name):
    """Whether some head's queries or keys are held by a larger set than what inputs reach."""
    return any(head.reach is None for head in heads(name))


def covered(name):
    """Whether that is so or positions do more than turn: such checkpoints have their own tests."""
    return unknown_inputs(name) or any(
        head.bias is not None
        or head.growth is not None
        or head.chunked
        or (head.rotary is not None and head.rotary.placed)
        for head in heads(name)
    )


def middle(enclosure):
    return (enclosure.lower + enclosure.upper) / 2


def t5_bucket(distance, buckets, furthest):
    """Of `buckets` for one direction, as transformers computes it."""
    exact = buckets // 2
    if distance < exact:
        return distance
    ratio = math.log(distance / exact) / math.log(furthest / exact)
    return min(buckets - 1, exact + int(ratio * (buckets - exact)))


def deberta_bucket(distance, places):
    """The bucket of a distance, as transformers computes it but in float64."""
    exact, most = places.exact, places.furthest
    if exact is None or abs(distance) <= exact:
        return distance
    share = math.log(abs(distance) / exact) / math.log(most / exact)
    return int(math.copysign(math.ceil(share * (exact - 1)) + exact, distance))


def products(bias, query, keys, positions):
    """What tables of distances add to the last query's logits, before the scale."""
    if isinstance(bias, SinusoidBias):
        bias = bias.at(int(np.ptp(positions)) + 1)
    places, found = bias.places, []
    for key, lag in zip(keys, positions[-1] - positions, strict=True):
        index = min(max(deberta_bucket(int(lag), places), places.low), places.high) - places.low
        level = 0.0 if bias.levels is None else bias.levels.value[index, 0]
        found.append(query @ bias.keys.value[index] + key @ bias.queries.value[index] + level)
    return np.array(found)


def biases(bias, positions):
    """What the last query's logits get for keys at these positions; ALiBi up to a constant."""
    if isinstance(bias, LinearBias):
        return -middle(bias.slope) * (positions[-1] - positions)
    if isinstance(bias, BoundedBias):
        return np.zeros(len(positions))  # what is recorded is without it
    found = []
    for lag in positions[-1] - positions:
        bucket = t5_bucket(abs(int(lag)), bias.buckets, bias.furthest)
        found.append(bias.values[bucket + (bias.buckets if lag < 0 else 0)])
    return np.array(found)
