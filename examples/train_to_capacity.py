"""Train a small attention layer until its heads could retrieve any of a million tokens.

    python examples/train_to_capacity.py            # half a minute on one core; needs JAX

Every token of a context has a query of its own, and each query must find its token among 8. That
asks for little capacity, and a penalty on the weights keeps it low. Training then goes on with one
more loss term: `capacity_shortfall` asks every head for a log capacity of log(2²⁰ · 0.5). Below it
no context of 2²⁰ tokens, whatever is in it, lets every token get half of its query's attention.

Both times the trained weights get their certificates, printed beside the surrogates that training
saw. Reaching the target is necessary for retrieval at that length, not sufficient.
"""

import argparse
import math

import jax
import jax.numpy as jnp
import numpy as np

from dispersion import Enclosure, Head, rigor_capacity, training
from dispersion.norms import projection_ball
from dispersion.spectrum import spectrum
from dispersion.spread import spread_bound

WIDTH, HEAD_DIM, QUERY_HEADS, KEY_HEADS, TOKENS = 64, 16, 4, 2, 8
SCALE = 0.25  # 1/√HEAD_DIM, exactly
TARGET = math.log(2**20 * 0.5)
RATE, PENALTY = 2e-3, 5e-2


def make_parameters(rng):
    """W_q and W_k stacked by head, [out, in], and the gain of the RMSNorm in front of both."""

    def draw(heads):
        return jnp.asarray(0.02 * rng.normal(size=(heads * HEAD_DIM, WIDTH)), jnp.float32)

    return {"wq": draw(QUERY_HEADS), "wk": draw(KEY_HEADS), "gain": jnp.ones(WIDTH)}


@jax.jit
def surrogates(parameters):
    """Spread and log capacity of the query heads, shape (QUERY_HEADS,) each."""
    weights = parameters["wq"], parameters["wk"]
    options = {"head_dim": HEAD_DIM, "gain": parameters["gain"]}
    return training.spread(*weights, **options), training.log_capacity(*weights, **options)


def retrieval_loss(parameters, tokens):
    """Mean cross-entropy of each token's query over all keys; tokens: (TOKENS, WIDTH)."""
    states = tokens * jax.lax.rsqrt(jnp.mean(tokens**2, axis=-1, keepdims=True))
    states = states * parameters["gain"]
    query = (states @ parameters["wq"].T).reshape(TOKENS, QUERY_HEADS, HEAD_DIM)
    key = (states @ parameters["wk"].T).reshape(TOKENS, KEY_HEADS, HEAD_DIM)
    key = jnp.repeat(key, QUERY_HEADS // KEY_HEADS, axis=1)
    logits = SCALE * jnp.einsum("ihd,jhd->hij", query, key)
    return -jnp.diagonal(jax.nn.log_softmax(logits), axis1=1, axis2=2).mean()


def train(parameters, steps, rng, target=None):
    """Parameters after `steps` of Adam; a target asks for that log capacity of every head."""
    zeros = jax.tree.map(jnp.zeros_like, parameters)

    def loss(parameters, tokens):
        value = retrieval_loss(parameters, tokens)
        value += PENALTY * sum((w**2).sum() for w in (parameters["wq"], parameters["wk"]))
        if target is not None:
            _, log_capacity = surrogates(parameters)
            value += training.capacity_shortfall(log_capacity, target).sum()
        return value

    @jax.jit
    def step(state, i, tokens):
        parameters, mean, square = state
        grad = jax.grad(loss)(parameters, tokens)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grad)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, grad)
        rate = RATE * jnp.minimum(1.0, 2 * (1 - i / steps))
        parameters = jax.tree.map(
            lambda p, m, s: p - rate * (m / (1 - 0.9**i)) / (jnp.sqrt(s / (1 - 0.99**i)) + 1e-8),
            parameters,
            mean,
            square,
        )
        return parameters, mean, square

    state = (parameters, zeros, zeros)
    for i in range(1, steps + 1):
        tokens = jnp.asarray(rng.normal(size=(TOKENS, WIDTH)), jnp.float32)
        state = step(state, float(i), tokens)
    return state[0]


def certificates(parameters):
    """Certified spread, and log capacity, of each query head: shape (QUERY_HEADS,) each."""
    stored = {name: np.asarray(value, np.float64) for name, value in parameters.items()}
    spreads, capacities = [], []
    for h in range(QUERY_HEADS):
        kv_head = h // (QUERY_HEADS // KEY_HEADS)
        query, key = (
            projection_ball(
                stored[name][i * HEAD_DIM : (i + 1) * HEAD_DIM], norm="rms", gain=stored["gain"]
            )
            for name, i in (("wq", h), ("wk", kv_head))
        )
        head = Head(query=query, key=key, scale=Enclosure.exact(SCALE))
        spreads.append(spread_bound(head).spread)
        # The bound that the surrogate follows; `spectrum(head).log_capacity` may be smaller.
        capacities.append(rigor_capacity.log_capacity(spectrum(head).values).upper)
    return np.array(spreads), np.array(capacities)


def report(title, parameters):
    """Print surrogates beside certificates, and how far apart they lie."""
    (spread, capacity), (spread_cert, capacity_cert) = (
        surrogates(parameters),
        certificates(parameters),
    )
    print(f"{title}\n  head  spread: surrogate certificate  log capacity: surrogate certificate")
    for h in range(QUERY_HEADS):
        print(
            f"  {h:4}  {spread[h]:17.4f} {spread_cert[h]:11.4f}"
            f"  {capacity[h]:23.4f} {capacity_cert[h]:11.4f}"
        )
    apart = max(
        float(np.abs(np.asarray(a) / b - 1).max())
        for a, b in ((spread, spread_cert), (capacity, capacity_cert))
    )
    print(f"  largest relative difference {apart:.1e}")
    return apart


def main():
    """Train without and then with the target; each time compare surrogates with certificates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    parameters = train(make_parameters(rng), arguments.steps, rng)
    report(f"Retrieval among {TOKENS} tokens alone", parameters)
    parameters = train(parameters, arguments.steps, rng, TARGET)
    report(f"And a log capacity of {TARGET:.4f}, for any of 2²⁰ tokens at 50 %", parameters)


if __name__ == "__main__":
    main()
