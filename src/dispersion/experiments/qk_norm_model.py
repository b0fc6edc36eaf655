"""A transformer of two layers without positions: three kinds of QK norm times four remedies.

RMSNorm in front of attention and MLP, no biases in projections. Queries attend to the whole context
and to themselves, so that each is the last token of a sequence of its own; tokens of the context do
not attend. Nor are there positions: a longer context changes nothing but how many keys a query has
to choose among, and what then fails is neither extrapolation of positions nor keys that were
themselves mixed from more tokens.

- QK norm: ``none``; ``headwise``, an RMSNorm of each head's query and key whose gain all heads of a
  layer share (as in Qwen3); ``layerwise``, one RMSNorm over all heads (as in OLMo 2).
- remedy: ``nothing``; ``sink``, a learned logit per head in the denominator (as in gpt-oss);
  ``gate``, the heads' outputs times a sigmoid of a projection of the layer's normalised input, per
  element (after Qiu et al. 2025); ``log``, logits times s·log n with a learned s per head, n the
  keys that a query sees (Scalable-Softmax).

Needs JAX (dependency group ``test``); everything is float32 on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dispersion.experiments.recall import KEY_BITS, MARKS, VALUES

if TYPE_CHECKING:
    from dispersion.experiments.recall import Contexts

LAYERS, WIDTH, HEADS, HEAD_DIM, HIDDEN = 2, 64, 4, 16, 128
QK_NORMS = ("none", "headwise", "layerwise")
REMEDIES = ("nothing", "sink", "gate", "log")
EPSILON = 1e-6

Tree = dict[str, Any]


class Variant(NamedTuple):
    """One of QK_NORMS and one of REMEDIES."""

    qk_norm: str
    remedy: str

    @property
    def name(self) -> str:
        return f"{self.qk_norm}+{self.remedy}"


VARIANTS = tuple(Variant(norm, remedy) for norm in QK_NORMS for remedy in REMEDIES)


def make_parameters(key: Any, variant: Variant, typical: int) -> Tree:
    """Weights with variance 1/fan-in, gains 1, sink logits 0, s = 1/log(typical).

    Matrices are the same for all variants of a key, as far as they have them; layout [in, out].
    """
    shapes = {"key": (KEY_BITS, WIDTH), "out": (WIDTH, VALUES + 1)}
    tables = {"value": VALUES, "mark": MARKS, "kind": 4}
    inner = HEADS * HEAD_DIM
    for i in range(LAYERS):
        shapes |= {f"{i}.{name}": (WIDTH, inner) for name in ("q", "k", "v", "gate")}
        shapes |= {f"{i}.o": (inner, WIDTH), f"{i}.up": (WIDTH, HIDDEN)}
        shapes |= {f"{i}.down": (HIDDEN, WIDTH)}
    keys = dict(zip([*shapes, *tables], jax.random.split(key, len(shapes) + 3), strict=True))
    p: Tree = {n: jax.random.normal(keys[n], s) / s[0] ** 0.5 for n, s in shapes.items()}
    p |= {n: jax.random.normal(keys[n], (rows, WIDTH)) for n, rows in tables.items()}
    p["norm"] = jnp.ones(WIDTH)
    for i in range(LAYERS):
        p |= {f"{i}.norm": jnp.ones(WIDTH), f"{i}.mlp_norm": jnp.ones(WIDTH)}
        if variant.qk_norm != "none":
            gains = HEAD_DIM if variant.qk_norm == "headwise" else inner
            p |= {f"{i}.q_gain": jnp.ones(gains), f"{i}.k_gain": jnp.ones(gains)}
        if variant.remedy == "sink":
            p[f"{i}.sink"] = jnp.zeros(HEADS)
        if variant.remedy == "log":
            p[f"{i}.s"] = jnp.full(HEADS, 1 / np.log(typical))
        if variant.remedy != "gate":
            del p[f"{i}.gate"]
    return p


def rms_norm(x: Any, gain: Any) -> Any:
    """Over the last axis, EPSILON added to the mean square."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPSILON) * gain


def embed(p: Tree, c: Contexts) -> tuple[Any, Any]:
    """One context's tokens, (1 + n, WIDTH), the opening one first, and its queries'."""
    # Products with one-hot rows: gradients of look-ups are slow.
    values = jax.nn.one_hot(c.values, VALUES) @ p["value"]
    items = c.keys @ p["key"] + values + _marked(p, c.marks) + p["kind"][1]
    needle = (c.asked_marks > 0)[:, None]
    asked = c.asked_keys @ p["key"] + _marked(p, c.asked_marks)
    queries = asked + jnp.where(needle, p["kind"][2], p["kind"][3])
    return jnp.concatenate([p["kind"][:1], items]), queries


def _marked(p: Tree, marks: Any) -> Any:
    return jax.nn.one_hot(marks - 1, MARKS) @ p["mark"]


def project(p: Tree, i: int, variant: Variant, h: Any) -> tuple[Any, Any, Any]:
    """Queries, keys and values of layer i, (HEADS, tokens, HEAD_DIM), the logit scale in queries.

    h is the normalised input of the layer, (tokens, WIDTH).
    """
    q, k, v = (h @ p[f"{i}.{name}"] for name in "qkv")
    if variant.qk_norm == "layerwise":
        q, k = rms_norm(q, p[f"{i}.q_gain"]), rms_norm(k, p[f"{i}.k_gain"])
    q, k, v = (x.reshape(-1, HEADS, HEAD_DIM).swapaxes(0, 1) for x in (q, k, v))
    if variant.qk_norm == "headwise":
        q, k = rms_norm(q, p[f"{i}.q_gain"]), rms_norm(k, p[f"{i}.k_gain"])
    return q * HEAD_DIM**-0.5, k, v


def length_factor(p: Tree, i: int, seen: Any) -> Any:
    """What multiplies the logits, (HEADS, rows): s·log n of rows that see n keys, or 1."""
    if f"{i}.s" not in p:
        return jnp.ones((HEADS, len(seen)))
    return p[f"{i}.s"][:, None] * jnp.log(seen.astype(jnp.float32))


def shares(p: Tree, i: int, logits: Any) -> tuple[Any, Any]:
    """Coefficients of the keys and that of the learned sink, 0 where there is none.

    logits: (HEADS, rows, keys), -inf where a key is masked.
    """
    top = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    sink = p.get(f"{i}.sink")
    if sink is not None:
        top = jnp.maximum(top, jax.lax.stop_gradient(sink)[:, None, None])
    weights = jnp.exp(logits - top)
    whole = jnp.sum(weights, axis=-1, keepdims=True)
    if sink is None:
        return weights / whole, jnp.zeros(whole.shape[:-1])
    extra = jnp.exp(sink[:, None, None] - top)
    return weights / (whole + extra), (extra / (whole + extra))[..., 0]


def _mixed(p: Tree, i: int, h: Any, heads: Any) -> Any:
    """The attention's output from the heads', (HEADS, rows, HEAD_DIM), and the rows' input h."""
    joined = heads.swapaxes(0, 1).reshape(-1, HEADS * HEAD_DIM)
    if f"{i}.gate" in p:
        joined = joined * jax.nn.sigmoid(h @ p[f"{i}.gate"])
    return joined @ p[f"{i}.o"]


def _mlp(p: Tree, i: int, x: Any) -> Any:
    return jax.nn.gelu(rms_norm(x, p[f"{i}.mlp_norm"]) @ p[f"{i}.up"]) @ p[f"{i}.down"]


def forward(p: Tree, variant: Variant, c: Contexts) -> tuple[Any, list[Tree]]:
    """Logits of the answers of one context's queries, (queries, VALUES + 1), and rows by layer.

    Rows: ``logits`` and ``shares``, (HEADS, queries, 1 + n + 1), keys being the context's tokens
    and the query's own; ``sink``, (HEADS, queries). Logits are -inf where a key does not exist.
    """
    x, y = embed(p, c)
    exists = jnp.arange(len(x)) <= c.count
    rows: list[Tree] = []
    for i in range(LAYERS):
        h, g = rms_norm(x, p[f"{i}.norm"]), rms_norm(y, p[f"{i}.norm"])
        _, k, v = project(p, i, variant, h)
        own_q, own_k, own_v = project(p, i, variant, g)
        logits = jnp.einsum("hrd,hkd->hrk", own_q, k)
        own = jnp.sum(own_q * own_k, axis=-1, keepdims=True)
        factor = length_factor(p, i, jnp.broadcast_to(c.count + 2, len(y)))[..., None]
        logits = jnp.concatenate([logits, own], axis=-1) * factor
        # Masked behind the factor, whose gradient would be 0 times -inf.
        logits = jnp.where(jnp.append(exists, True), logits, -jnp.inf)
        held, sink = shares(p, i, logits)
        rows.append({"logits": logits, "shares": held, "sink": sink})
        y = y + _mixed(p, i, g, held[..., :-1] @ v + held[..., -1:] * own_v)
        y = y + _mlp(p, i, y)
        if i + 1 < LAYERS:  # nothing reads the context behind the last layer
            x = x + _mlp(p, i, x)
    return rms_norm(y, p["norm"]) @ p["out"], rows
