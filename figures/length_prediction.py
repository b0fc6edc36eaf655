"""Predictions from short contexts, held to longer ones, beside both baselines."""

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure

FIGURE = Figure(
    title="Predicted from short contexts, measured on longer ones",
    paper="own",
    number="T14",
    theorems="T14",
    seconds=1,
    recompute_seconds=3600,
)
DATA = "length_prediction.json"
LOOKS = {
    "constant": ("nothing changes (γ = 0)", "o", style.SKY),
    "value": ("slope goes on (T14)", "D", style.BLUE),
    "damped": ("part of the slope", "s", style.ORANGE),
    "dispersed": ("fully dispersed (γ = 1)", "^", style.RED),
}
NAMES = {"coefficient": "largest\ncoefficient", "sink": "first 4\ntokens", "entropy": "entropy"}


def recompute(seeds=None):
    from dispersion.experiments.length_prediction import measure_all

    measure_all(lambda value: catalogue.write_results(DATA, value))


def models():
    return catalogue.results(DATA)["models"]


def result(model, fitted):
    """Of one model, fitted on rows of at most so many keys."""
    return next(x for x in model["results"] if x["fitted"] == fitted)


def spoken(values):
    return " and ".join(f"{x:.3f}" for x in values)


def winners():
    """What errs least, in words: by model and quantity, at both lengths."""
    short, longer = catalogue.results(DATA)["settings"]["fitted"]
    parts = []
    for model in models():
        for name, words in NAMES.items():
            least = [
                min(LOOKS, key=result(model, fitted)[name]["error"].get)
                for fitted in (short, longer)
            ]
            told = " and ".join(LOOKS[how][0] for how in dict.fromkeys(least))
            parts.append(f"{told} ({model['name'].split('-')[0]}, {' '.join(words.split())})")
    return "from " + ", ".join(parts)


def caption():
    data = catalogue.results(DATA)
    settings, found = data["settings"], models()
    short, longer = settings["fitted"]
    half = settings["length"] // 2
    at = [result(model, short) for model in found]
    error = {(name, how): [x[name]["error"][how] for x in at] for name in NAMES for how in LOOKS}
    held = [len(x["documents"]) - x["developed"] for x in found]
    damped = settings["damped"]

    def told(part):
        shares = ((" ".join(NAMES[name].split()), [x[name][part] for x in at]) for name in NAMES)
        return ", ".join(f"{a:.0%} and {b:.0%} ({name})" for name, (a, b) in shares)

    return f"""
    Every head that sees the whole context, of {" and ".join(x["name"] for x in found)}
    ({" and ".join(str(x["heads"]) for x in found)} heads), on documents of {settings["length"]:,}
    tokens: Python's manual and standard library. Rows of at most {short} keys of half of the
    documents predict the means over rows of {half:,} to {settings["length"] - 1:,} keys of the
    other half ({" and ".join(map(str, held))} documents held out). Left: mean error over heads of
    the mean largest coefficient and of the share of the first 4 tokens; hollow: from {longer:,}
    keys. Middle: of the entropy. Right: each head's predicted and measured mean largest
    coefficient. Largest coefficient: T14 errs by {spoken(error["coefficient", "value"])}, the
    baselines by {spoken(error["coefficient", "constant"])} (γ = 0) and
    {spoken(error["coefficient", "dispersed"])} (γ = 1). First tokens:
    {spoken(error["sink", "value"])}, the baselines {spoken(error["sink", "constant"])} and
    {spoken(error["sink", "dispersed"])}. Entropy: {spoken(error["entropy", "value"])} nats, the
    baselines {spoken(error["entropy", "constant"])} and {spoken(error["entropy", "dispersed"])}.
    Squares let only a part of the slope go on ({damped["log_odds"]:g} in log odds,
    {damped["entropy"]:g} in nats), chosen on {found[0]["developed"]} further documents of the first
    model: {spoken(error["coefficient", "damped"])} for the largest coefficient. The least mean
    error comes, from {short} and from {longer:,} keys, {winners()}. No estimate is good for every
    head: T14 is off by more than {settings["far"]["coefficient"]:g} for
    {at[0]["coefficient"]["far"]["value"]:.0%} and {at[1]["coefficient"]["far"]["value"]:.0%} of the
    heads' largest coefficients, and γ = 0 would be nearest for
    {at[0]["coefficient"]["best"]["constant"]:.0%} and
    {at[1]["coefficient"]["best"]["constant"]:.0%} of them. Intervals of {settings["level"]:.0%} for
    one more document held {told("covered")}; they are wide, {at[0]["coefficient"]["width"]:.2f} and
    {at[1]["coefficient"]["width"]:.2f} in the mean for the largest coefficient. Eight times the
    length is all that was tried: nothing here is a bound, and longer contexts are further off.
    """


def errors(axes, quantities, label):
    """Mean errors of every estimate, by model and quantity."""
    settings = catalogue.results(DATA)["settings"]
    places, ticks = [], []
    for column, (quantity, model) in enumerate((q, m) for q in quantities for m in models()):
        for index, (how, (name, mark, colour)) in enumerate(LOOKS.items()):
            for fitted, face in zip(settings["fitted"], (colour, "white"), strict=True):
                axes.plot(
                    [column + 0.12 * (index - 1.5)],
                    [result(model, fitted)[quantity]["error"][how]],
                    mark,
                    color=colour,
                    markerfacecolor=face,
                    markersize=4,
                    label=name if not column and fitted == settings["fitted"][0] else None,
                )
        places.append(column)
        ticks.append(f"{model['name'].removesuffix(' 270M').split('-')[0]}\n{NAMES[quantity]}")
    axes.set_xticks(places, ticks, fontsize=5.5)
    axes.set(ylabel=label, ylim=(0, None), xlim=(-0.5, len(places) - 0.5))
    axes.grid(axis="x", visible=False)


def draw():
    canvas, (left, middle, right) = style.panels(3, width=style.PAGE, height=2.8)
    canvas.get_layout_engine().set(w_pad=0.06)
    errors(left, ("coefficient", "sink"), "mean error, share")
    errors(middle, ("entropy",), "mean error, nats")
    middle.legend(loc="upper right", fontsize=5.5)
    middle.set_ylim(0, 2.1)
    short = catalogue.results(DATA)["settings"]["fitted"][0]
    for model, mark, colour in zip(models(), "o^", (style.BLUE, style.RED), strict=True):
        found = result(model, short)["coefficient"]
        right.plot(
            found["guesses"], found["truths"], mark, color=colour, markersize=2, label=model["name"]
        )
    right.plot([0, 1], [0, 1], color=style.BLACK, linewidth=0.7)
    right.set(xlabel="predicted", ylabel="measured on others", xlim=(0, 1), ylim=(0, 1))
    right.legend(loc="upper left", fontsize=6)
    return canvas
