"""Single-needle retrieval: the task the demo checkpoints are trained and measured on.

A sequence holds n − 1 item tokens and ends in a query token. Every item is a pair (key, value); the
query names a key that exactly one item, the needle, carries; the answer is that item's value. The
needle's position is uniform, the distractors carry the other keys.
"""

import numpy as np

KEYS, VALUES = 8, 6
FIRST_QUERY = KEYS * VALUES  # items come first: token = key · VALUES + value
FIRST_ANSWER = FIRST_QUERY + KEYS
TRAIN_LENGTH = 16
EVAL_LENGTHS = (16, 32, 64, 256, 1024, 4096, 16384)
EVAL_SEQUENCES = 1024
BATCH_TOKENS = 1 << 17  # tokens in one test batch, to bound memory


def sample(rng, batch, length):
    """Token sequences (batch, length), answer tokens (batch,) and needle positions (batch,)."""
    asked = rng.integers(KEYS, size=batch)
    value = rng.integers(VALUES, size=batch)
    needle = rng.integers(length - 1, size=batch)
    other = (asked[:, None] + rng.integers(1, KEYS, size=(batch, length))) % KEYS
    tokens = other * VALUES + rng.integers(VALUES, size=(batch, length))
    tokens[np.arange(batch), needle] = asked * VALUES + value
    tokens[:, -1] = FIRST_QUERY + asked
    return tokens.astype(np.int32), (FIRST_ANSWER + value).astype(np.int32), needle


def test_batches(seed, length):
    """Yield batches of sample(), EVAL_SEQUENCES sequences in all, the same ones for each seed."""
    rng = np.random.default_rng([seed, 1, length])
    most = max(1, BATCH_TOKENS // length)
    for first in range(0, EVAL_SEQUENCES, most):
        yield sample(rng, min(most, EVAL_SEQUENCES - first), length)
