"""One attention layer written from its definition, beside the normal form the package makes of it.

`Layer.row` shares no code with the package: complex rotations, plain norms, an explicit softmax.
"""

from dataclasses import dataclass, field

import numpy as np

from dispersion.enclosure import Enclosure
from dispersion.head import Head
from dispersion.norms import projection_ball, qk_norm_ball
from dispersion.reach import QKNorm, Reach
from dispersion.rotary import rotary


@dataclass(eq=False)
class Layer:
    """Weights of one head among `heads` that share a layerwise norm; layouts [out, in]."""

    rng: np.random.Generator
    width: int = 12
    head_dim: int = 4
    norm: str = "rms"
    gain: bool = True
    norm_bias: bool = False
    bias: float = 0.0
    qk: str = "none"  # "none", "rms", "layer", "layerwise"
    qk_bias: bool = False
    eps: float = 0.0
    heads: int = 1
    frequencies: tuple = ()
    rotated: int | None = None
    interleaved: bool = False
    scale: float = 0.5
    soft_cap: float | None = None
    sink: float | None = None
    window: int | None = None
    size: float = 1.0
    tensors: dict = field(default_factory=dict)

    def __post_init__(self):
        draw = self.rng.standard_normal
        rows = self.heads * self.head_dim
        for side in "qk":
            self.tensors[f"w_{side}"] = draw((rows, self.width)) * self.size
            self.tensors[f"b_{side}"] = draw(rows) * self.bias if self.bias else None
            self.tensors[f"g_{side}"] = np.exp(draw(rows) / 2)
            self.tensors[f"n_{side}"] = draw(rows) if self.qk_bias else None
        self.tensors["gain"] = np.exp(draw(self.width) / 2) if self.gain else None
        self.tensors["beta"] = draw(self.width) if self.norm_bias else None
        self.start = (self.heads - 1) * self.head_dim  # the last head

    @property
    def own(self):
        return slice(self.start, self.start + self.head_dim)

    def head(self):
        """The normal form, as an architecture adapter would make it."""
        t = self.tensors
        balls, norms = [], []
        for side in "qk":
            if self.qk == "none":
                bias = None if t[f"b_{side}"] is None else t[f"b_{side}"][self.own]
                balls.append(
                    projection_ball(
                        t[f"w_{side}"][self.own],
                        norm=self.norm,
                        gain=t["gain"],
                        norm_bias=t["beta"],
                        bias=bias,
                    )
                )
                norms.append(None)
                continue
            layerwise = self.qk == "layerwise"
            part = slice(None) if layerwise else self.own
            bias = t[f"n_{side}"]
            balls.append(
                qk_norm_ball(
                    t[f"g_{side}"][part],
                    kind="layer" if self.qk == "layer" else "rms",
                    head_dim=self.head_dim,
                    norm_width=len(t[f"g_{side}"][part]),
                    start=self.start if layerwise else 0,
                    bias=None if bias is None else bias[part],
                )
            )
            norms.append(
                QKNorm(
                    t[f"w_{side}"][part],
                    None if t[f"b_{side}"] is None else t[f"b_{side}"][part],
                    self.start if layerwise else 0,
                    self.eps,
                    self.qk == "layer",
                )
            )
        turn = None
        if self.frequencies:
            turn = rotary(
                list(self.frequencies),
                self.head_dim,
                interleaved=self.interleaved,
                rotated=self.rotated,
            )
        return Head(
            query=balls[0],
            key=balls[1],
            scale=Enclosure.exact(self.scale),
            rotary=turn,
            soft_cap=self.soft_cap,
            sink=self.sink,
            window=self.window,
            reach=Reach(
                self.width,
                float(np.sqrt(self.width)),
                t["gain"],
                t["beta"],
                self.norm == "layer",
                norms[0],
                norms[1],
            ),
        )

    def ball_coordinates(self, states):
        """What the norm in front gave, undone: its norm may not exceed 1 (and its mean is 0)."""
        t = self.tensors
        states = states if t["beta"] is None else states - t["beta"]
        states = states if t["gain"] is None else states / t["gain"]
        return states / np.sqrt(self.width)

    def vectors(self, states, side):
        """Queries or keys of hidden states (n, width), before rotation, in extended precision."""
        t = self.tensors
        x = np.asarray(states, dtype=np.longdouble) @ t[f"w_{side}"].T.astype(np.longdouble)
        if t[f"b_{side}"] is not None:
            x = x + t[f"b_{side}"]
        if self.qk != "none":
            x = x if self.qk == "layerwise" else x[:, self.own]
            gain = t[f"g_{side}"] if self.qk == "layerwise" else t[f"g_{side}"][self.own]
            if self.qk == "layer":
                x = x - x.mean(axis=1, keepdims=True)
            x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + np.longdouble(self.eps)) * gain
            if self.qk_bias:
                bias = t[f"n_{side}"]
                x = x + (bias if self.qk == "layerwise" else bias[self.own])
            return x[:, self.own] if self.qk == "layerwise" else x
        return x[:, self.own]

    def turn(self, x, positions):
        """Each pair as a complex number times e^{i·position·frequency}."""
        if not self.frequencies:
            return x
        x = x.copy()
        half = (self.head_dim if self.rotated is None else self.rotated) // 2
        for j, frequency in enumerate(self.frequencies):
            a, b = (2 * j, 2 * j + 1) if self.interleaved else (j, j + half)
            angle = np.asarray(positions, dtype=np.longdouble) * np.longdouble(frequency)
            z = (x[:, a] + 1j * x[:, b]) * np.exp(1j * angle)
            x[:, a], x[:, b] = z.real, z.imag
        return x

    def row(self, states):
        """Logits and coefficients of the last token's row, keys from first visible to last."""
        n = len(states)
        first = 0 if self.window is None else max(0, n - self.window)
        q = self.turn(self.vectors(states[-1:], "q"), [n - 1])[0]
        k = self.turn(self.vectors(states, "k"), np.arange(n))[first:]
        logits = k @ q * self.scale
        if self.soft_cap is not None:
            logits = self.soft_cap * np.tanh(logits / self.soft_cap)
        everything = logits if self.sink is None else np.append(logits, self.sink)
        weights = np.exp(logits - everything.max())
        return logits, weights / np.exp(everything - everything.max()).sum()


def layers(seed):
    """Layers of many kinds; every variant that attention of today has, at small sizes."""
    turn = {"frequencies": (1.0, 0.31)}
    kinds = {
        "plain": {},
        "wide key": {"width": 40, "head_dim": 6},
        "layer norm with bias": {"norm": "layer", "norm_bias": True, "bias": 1.0},
        "rank below head_dim": {"width": 3},
        "width 1": {"width": 1},
        "head_dim 1": {"head_dim": 1},
        "head_dim 2 rotated": {"head_dim": 2, "frequencies": (0.7,)},
        "rotated": turn,
        "rotated with biases": {"bias": 1.0, **turn},
        "interleaved": {"interleaved": True, "bias": 1.0, **turn},
        "partly rotated": {"head_dim": 6, "rotated": 4, "bias": 1.0, **turn},
        "negative frequency": {"frequencies": (-1.0, 0.4), "bias": 1.0},
        "qk norm": {"qk": "rms", "eps": 1e-6, **turn},
        "qk norm, eps 0": {"qk": "rms", "eps": 0.0, **turn},
        "qk norm, large eps": {"qk": "rms", "eps": 0.5, "size": 0.3},
        "qk norm with projection bias": {"qk": "rms", "eps": 1e-5, "bias": 0.2, "width": 24},
        "qk layer norm": {"qk": "layer", "qk_bias": True, "eps": 1e-5, "width": 20, **turn},
        "qk layer norm after layer norm": {
            "qk": "layer",
            "norm": "layer",
            "norm_bias": True,
            "eps": 1e-5,
            "width": 20,
        },
        "layerwise": {"qk": "layerwise", "heads": 3, "eps": 1e-6, "width": 40, **turn},
        "soft cap": {"soft_cap": 3.0, **turn},
        "tiny soft cap": {"soft_cap": 1e-3},
        "huge soft cap": {"soft_cap": 1e6, "bias": 1.0},
        "sink": {"sink": 1.5, "scale": 0.05, **turn},
        "window": {"window": 3, **turn},
        "window 2": {"window": 2},
        "window 1": {"window": 1},
        "tiny scale": {"scale": 1e-12},
        "large logits": {"scale": 30.0, **turn},
    }
    return {
        name: Layer(np.random.default_rng([seed, i]), **kind)
        for i, (name, kind) in enumerate(kinds.items())
    }
