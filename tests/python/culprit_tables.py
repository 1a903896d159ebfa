"""Calibration and power of the score of replayed calls: other implementations of many APIs, errors put into results.

    python tests/python/culprit_tables.py [--small] [--only calibration|power] [--outliers 10]

`calibration` prints per family and type the 99.9 % quantile of the score of results that another implementation made: a
decomposition of torch, kernels without the vendor library, other memory layouts, other splits, another type inside and
one rounding. `power` prints how often an error that was put into a clean result scores above the limit.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from msprobe.precheck.culprit_calls import Prepared
from msprobe.precheck.culprit_work import Forward
from msprobe.precheck.dump import Call
from msprobe.precheck.inputs import Arguments, collect

Tensor = torch.Tensor
LIMIT = 4.0
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SIZES = ((7, 33), (16, 256), (4, 4096))
SHAPES_OF_INPUTS = ("normal", "shifted", "positive", "heavy")


class Draw:
    """Inputs of one case."""

    def __init__(self, size: tuple[int, int], shape: str, dtype: torch.dtype, seed: int) -> None:
        self.rows, self.columns = size
        self.shape, self.dtype = shape, dtype
        self.signs = torch.Generator().manual_seed(seed)

    def __call__(self, *size: int) -> Tensor:
        """A tensor; without a size rows x columns."""
        x = torch.randn(size or (self.rows, self.columns), generator=self.signs, dtype=torch.float64)
        if self.shape == "shifted":
            x = x + 10
        elif self.shape == "positive":
            x = x.abs() + 0.1
        elif self.shape == "heavy":
            x = x**3
        return x.to(self.dtype)

    def positive(self, *size: int) -> Tensor:
        return self(*size).abs() + torch.tensor(0.1, dtype=self.dtype)

    def share(self) -> Tensor:
        """Between 0 and 1."""
        return torch.rand((self.rows, self.columns), generator=self.signs, dtype=torch.float64).to(self.dtype)

    def index(self, below: int, *size: int) -> Tensor:
        return torch.randint(0, below, size, generator=self.signs)


@dataclass(frozen=True)
class Api:
    """One variant of an API: its recorded name, and how its arguments are made."""

    family: str
    prefix: str
    name: str
    make: Callable[[Draw], tuple[Any, ...]]
    keywords: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    rows: bool = False  # works on each row of its first argument, and on nothing else

    @property
    def function(self) -> Callable[..., Any]:
        place: Any = F if self.prefix == "Functional" else torch
        for part in self.name.split("."):
            place = getattr(place, part)
        found: Callable[..., Any] = place
        return found

    def __str__(self) -> str:
        return self.label or self.name


def _each(family: str, prefix: str, names: str, make: Callable[[Draw], tuple[Any, ...]], **more: Any) -> list[Api]:
    return [Api(family, prefix, name, make, **more) for name in names.split()]


def _apis() -> list[Api]:
    out: list[Api] = []
    one = lambda d: (d(),)  # noqa: E731
    two = lambda d: (d(), d())  # noqa: E731
    three = lambda d: (d(), d(), d())  # noqa: E731
    positive = lambda d: (d.positive(),)  # noqa: E731
    e, t, a = "elementwise", "transcendental", "activation"
    out += _each(e, "Torch", "add sub mul maximum minimum hypot", two)
    out += _each(e, "Torch", "neg abs square reciprocal clamp_min", lambda d: (d(),))[:4]
    out += _each(e, "Torch", "div remainder", lambda d: (d(), d.positive()))[:1]
    out += _each(e, "Torch", "addcmul", three)
    out += _each(e, "Torch", "addcdiv", lambda d: (d(), d(), d.positive()))
    out += _each(e, "Torch", "lerp", lambda d: (d(), d(), 0.3))
    out += _each(e, "Torch", "clamp", lambda d: (d(), -0.5, 0.5))
    out += _each(e, "Torch", "where", lambda d: (d() > d(), d(), d()))
    out += _each(t, "Torch", "exp expm1 sin cos tanh sinh atan erf sigmoid asinh erfc", one)
    out += _each(t, "Torch", "log log2 log10 log1p sqrt rsqrt", positive)
    out += _each(t, "Torch", "pow", lambda d: (d.positive(), 1.7))
    out += _each(t, "Torch", "atan2", two)
    out += _each(a, "Functional", "relu silu mish elu selu celu leaky_relu softplus logsigmoid", one)
    out += _each(a, "Functional", "hardswish hardsigmoid softsign tanhshrink relu6 hardtanh", one)
    out += _each(a, "Functional", "gelu", one, rows=True)
    out += [Api(a, "Functional", "gelu", one, {"approximate": "tanh"}, "gelu tanh")]
    out += _each(a, "Functional", "glu", lambda d: (d()[:, : d.columns // 2 * 2],))
    r = "reduction"
    for name in ("sum", "mean", "var", "std", "amax", "amin", "nansum"):
        out += [Api(r, "Torch", name, lambda d: (d(), -1), label=f"{name} rows")]
    out += _each(r, "Torch", "sum mean", one)
    out += _each(r, "Torch", "cumsum", lambda d: (d(), -1), label="cumsum")
    out += _each(r, "Torch", "linalg.vector_norm", one)
    out += _each(r, "Torch", "trace", lambda d: (d(),))
    m = "matmul"
    square = lambda d: (d(), d(d.columns, 17))  # noqa: E731
    out += _each(m, "Torch", "matmul mm", square)
    out += _each(m, "Torch", "bmm", lambda d: (d(3, d.rows, d.columns), d(3, d.columns, 9)))
    out += _each(m, "Torch", "addmm", lambda d: (d(17), d(), d(d.columns, 17)))
    out += _each(m, "Torch", "baddbmm", lambda d: (d(3, d.rows, 9), d(3, d.rows, d.columns), d(3, d.columns, 9)))
    out += _each(m, "Torch", "mv", lambda d: (d(), d(d.columns)))
    out += _each(m, "Torch", "outer", lambda d: (d(d.rows), d(d.columns)))
    out += _each(m, "Torch", "dot", lambda d: (d(d.columns), d(d.columns)))
    out += _each(m, "Functional", "linear", lambda d: (d(), d(17, d.columns), d(17)))
    out += [Api(m, "Torch", "einsum", lambda d: ("ik,kj->ij", d(), d(d.columns, 17)))]
    c = "convolution"
    out += _each(c, "Functional", "conv1d", lambda d: (d(2, 4, d.columns), d(5, 4, 3), d(5)))
    out += _each(c, "Functional", "conv2d", lambda d: (d(2, 4, d.rows + 2, 33), d(5, 4, 3, 3), d(5)))
    out += _each(c, "Functional", "conv3d", lambda d: (d(1, 3, 6, d.rows + 2, 9), d(4, 3, 3, 3, 3)))
    out += _each(c, "Functional", "conv_transpose1d", lambda d: (d(2, 4, min(d.columns, 256)), d(4, 5, 3)))
    out += _each(c, "Functional", "conv_transpose2d", lambda d: (d(2, 4, d.rows, 33), d(4, 5, 3, 3)))
    n = "norm"
    out += _each(n, "Functional", "layer_norm", lambda d: (d(), [d.columns], d(d.columns), d(d.columns)), rows=True)
    out += _each(n, "Functional", "rms_norm", lambda d: (d(), [d.columns], d(d.columns)), rows=True)
    out += _each(n, "Functional", "group_norm", lambda d: (d(3, 8, d.columns), 2, d(8), d(8)))
    batch = {"training": True}
    out += _each(n, "Functional", "batch_norm", lambda d: (d(5, 8, d.columns), None, None, d(8), d(8)), keywords=batch)
    out += _each(n, "Functional", "instance_norm", lambda d: (d(3, 8, d.columns),))
    out += _each(n, "Functional", "normalize", one, rows=True)
    out += _each(n, "Functional", "local_response_norm", lambda d: (d(3, 8, d.columns), 3))
    s = "softmax, attention"
    out += _each(s, "Functional", "softmax log_softmax softmin", lambda d: (d(), -1), rows=True)
    out += _each(s, "Torch", "logsumexp", lambda d: (d(), -1), rows=True)
    heads = lambda d: (d(2, 2, 9, 16), d(2, 2, d.rows, 16), d(2, 2, d.rows, 16))  # noqa: E731
    out += _each(s, "Functional", "scaled_dot_product_attention", heads)
    g = "gather, scatter"
    out += _each(g, "Torch", "gather", lambda d: (d(), 1, d.index(d.columns, d.rows, 20)))
    out += _each(g, "Torch", "index_select", lambda d: (d(), 1, d.index(d.columns, 40)))
    out += _each(g, "Functional", "embedding", lambda d: (d.index(d.rows, 20), d()))
    out += _each(g, "Torch", "scatter_add", lambda d: (d(), 1, d.index(8, d.rows, d.columns), d()))
    out += _each(g, "Torch", "index_add", lambda d: (d(4, d.columns), 0, d.index(4, d.rows), d()))
    out += _each(g, "Torch", "take_along_dim", lambda d: (d(), d.index(d.columns, d.rows, 20), 1))
    out += _each(g, "Torch", "roll", lambda d: (d(), 3, 1))
    out += _each(g, "Torch", "flip", lambda d: (d(), [1]))
    p = "pooling, resampling"
    image = lambda d: (d(2, 3, 12, 20),)  # noqa: E731
    out += _each(p, "Functional", "avg_pool1d", lambda d: (d(2, 3, d.columns), 3))
    out += _each(p, "Functional", "avg_pool2d max_pool2d", lambda d: (d(2, 3, 12, 20), 3))
    out += _each(p, "Functional", "adaptive_avg_pool2d", lambda d: (d(2, 3, 12, 20), [5, 7]))
    out += _each(p, "Functional", "lp_pool2d", lambda d: (d.positive(2, 3, 12, 20), 2.0, 3))
    for mode in ("bilinear", "bicubic", "nearest"):
        keywords = {"size": [9, 31], "mode": mode}
        out += [Api(p, "Functional", "interpolate", image, keywords, f"interpolate {mode}")]
    out += _each(p, "Functional", "pixel_shuffle", lambda d: (d(2, 8, 6, 7), 2))
    lo = "loss"
    out += _each(lo, "Functional", "mse_loss l1_loss smooth_l1_loss huber_loss poisson_nll_loss", two)
    out += _each(lo, "Functional", "cross_entropy", lambda d: (d(), d.index(d.columns, d.rows)))
    nll = lambda d: (F.log_softmax(d(), -1), d.index(d.columns, d.rows))  # noqa: E731
    out += _each(lo, "Functional", "nll_loss", nll)
    out += _each(lo, "Functional", "kl_div", lambda d: (F.log_softmax(d(), -1), F.softmax(d(), -1)))
    out += _each(lo, "Functional", "binary_cross_entropy_with_logits", lambda d: (d(), d.share()))
    out += _each(lo, "Functional", "cosine_similarity", two)
    out += _each(lo, "Functional", "soft_margin_loss", lambda d: (d(), d().sign()))
    return out


APIS = _apis()


# ---- other implementations


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, change) for v in value)
    return value


def inside(api: Api, args: tuple[Any, ...], wide: torch.dtype) -> Any:
    """Another type inside, and one rounding of the result."""
    narrow = next(t.dtype for t in tensors(args) if t.is_floating_point())
    up = lambda t: t.to(wide) if t.is_floating_point() else t  # noqa: E731
    down = lambda t: t.to(narrow) if t.is_floating_point() else t  # noqa: E731
    return _mapped(api.function(*_mapped(args, up), **api.keywords), down)


def turned(api: Api, args: tuple[Any, ...]) -> Any:
    """The same elements in another memory layout."""

    def turn(t: Tensor) -> Tensor:
        return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t

    return api.function(*_mapped(args, turn), **api.keywords)


def by_rows(api: Api, args: tuple[Any, ...]) -> Any:
    """One row after the other."""
    return torch.cat([api.function(row, *args[1:], **api.keywords) for row in args[0].split(1)])


def reference(api: Api, args: tuple[Any, ...]) -> Any:
    """The decomposition that torch has of it."""
    place: Any = torch._refs.nn.functional if api.prefix == "Functional" else torch._refs
    for part in api.name.split("."):
        place = getattr(place, part)
    return place(*args, **api.keywords)


def without_vendor(api: Api, args: tuple[Any, ...]) -> Any:
    with torch.backends.mkldnn.flags(enabled=False):
        return api.function(*args, **api.keywords)


BLOCK = 256  # terms that a simple kernel adds one after the other


def split_sums(api: Api, args: tuple[Any, ...]) -> Any:
    """Sums in two halves, each in float32 at least, added up; one rounding."""
    narrow = args_dtype(args)
    x, *rest = _mapped(args, lambda t: t.float() if t.is_floating_point() else t)
    half = x.shape[-1] // 2
    if api.name in ("matmul", "mm"):
        (w,) = rest
        return (x[:, :half] @ w[:half] + x[:, half:] @ w[half:]).to(narrow)
    if api.name == "linear":
        w, b = rest
        return (F.linear(x[:, :half], w[:, :half]) + F.linear(x[:, half:], w[:, half:], b)).to(narrow)
    if api.name == "sum":
        found = api.function(x[..., :half], *rest) + api.function(x[..., half:], *rest)
        return found.to(narrow)
    raise NotImplementedError


def one_after_the_other(api: Api, args: tuple[Any, ...]) -> Any:
    """Sums in sequence within blocks, and then over the blocks."""
    if api.name == "sum" and len(args) == 2:
        terms = args[0].float()
    elif api.name in ("mv", "dot"):
        terms = args[0].float() * args[1].float()
    else:
        raise NotImplementedError
    blocks = []
    for block in terms.split(BLOCK, -1):
        total = block[..., 0]
        for i in range(1, block.shape[-1]):
            total = total + block[..., i]
        blocks.append(total)
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total.to(args[0].dtype)


def others(api: Api, args: tuple[Any, ...], *, many: bool) -> Iterator[tuple[str, Any]]:
    """Results of other implementations; those that an API does not have are left out."""
    ways: list[tuple[str, Callable[[], Any]]] = [
        ("decomposed", lambda: reference(api, args)),
        ("one rounding", lambda: inside(api, args, torch.float32 if args_dtype(args).itemsize == 2 else torch.float64)),
        ("layout", lambda: turned(api, args)),
        ("halves", lambda: split_sums(api, args)),
    ]
    if many:
        ways += [
            ("no vendor", lambda: without_vendor(api, args)),
            ("sequence", lambda: one_after_the_other(api, args)),
        ]
        if api.rows:
            ways.append(("rows", lambda: by_rows(api, args)))
    for name, way in ways:
        with contextlib.suppress(Exception):  # not there, or not for these types
            yield name, way()


def tensors(value: Any) -> list[Tensor]:
    out: list[Tensor] = []
    collect(list(value) if isinstance(value, tuple) else value, out)
    return out


def args_dtype(args: tuple[Any, ...]) -> torch.dtype:
    return next(t.dtype for t in tensors(args) if t.is_floating_point())


# ---- scores


def score_of(api: Api, args: tuple[Any, ...], result: Any, limit: float = 0.0) -> float:
    """The product's score of a result; with `limit` 0 always with probes. Negative: nothing to compare."""
    flat = tensors(result if isinstance(result, (list, tuple)) else [result])
    outputs = [(f"output.{i}", t) for i, t in enumerate(flat)]
    arguments = Arguments(list(args), dict(api.keywords))
    last = api.name.rpartition(".")[2]
    prepared = Prepared(Call("", {}), last, last, arguments, [api.function], outputs)
    leaves = Forward(prepared).leaves(limit)
    return max((leaf["score"] for leaf in leaves), default=-1.0)


@dataclass
class Case:
    """A score with where it comes from."""

    api: Api
    dtype: torch.dtype
    what: str
    score: float


def draws(*, small: bool) -> Iterator[tuple[torch.dtype, Draw]]:
    """Inputs of all cases of one API."""
    for dtype in DTYPES:
        for size in SIZES[: 1 if small else 3]:
            for shape in ("normal", "heavy") if small else SHAPES_OF_INPUTS:
                for seed in range(1 if small else 2):
                    yield dtype, Draw(size, shape, dtype, 1000 * seed + size[1])


def calibration(*, small: bool) -> list[Case]:
    """Scores of clean results of other implementations."""
    out: list[Case] = []
    torch._refs  # noqa: B018
    for api in APIS:
        for dtype, draw in draws(small=small):
            args = api.make(draw)
            try:
                native = api.function(*args, **api.keywords)
            except (RuntimeError, NotImplementedError):
                continue  # no kernel for the type
            for what, found in others(api, args, many=not small):
                pairs = zip(tensors([found]), tensors([native]), strict=False)
                if not all(f.shape == n.shape and f.dtype == n.dtype for f, n in pairs):
                    continue
                with contextlib.suppress(Exception):
                    out.append(Case(api, dtype, f"{what} {draw.shape} {draw.rows}x{draw.columns}", 0.0))
                    out[-1].score = score_of(api, args, found)
    return [c for c in out if c.score >= 0]


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


# Their sums have as many roundings as terms: other kernels reach the limit's neighbourhood (docs/culprit.md).
EXCEPTIONS = ("cumsum", "conv_transpose1d", "conv_transpose2d", "cosine_similarity")


# ---- power


def moved(result: Tensor, place: int, units: int) -> Tensor:
    """One element off by units in the last place."""
    out = result.clone()
    flat = out.view(-1)
    one = torch.nextafter(flat[place].abs(), torch.tensor(float("inf"), dtype=out.dtype)) - flat[place].abs()
    flat[place] = flat[place] + units * one
    return out


def flipped(result: Tensor, place: int, bit: int) -> Tensor:
    out = result.clone()
    out.view(-1).view(torch.int32)[place] ^= 1 << bit
    return out


def cut(t: Tensor, bits: int) -> Tensor:
    """To so many bits of the mantissa, float32."""
    mask = ~((1 << (23 - bits)) - 1)
    return (t.view(torch.int32) & mask).view(torch.float32)


def power(*, small: bool) -> dict[str, dict[torch.dtype, float]]:
    """Share of injected errors that score above the limit, by what was injected and type."""
    seen: dict[str, dict[torch.dtype, list[bool]]] = {}

    def put(row: str, dtype: torch.dtype, api: Api, args: tuple[Any, ...], wrong: Any) -> None:
        seen.setdefault(row, {}).setdefault(dtype, []).append(score_of(api, args, wrong, LIMIT) > LIMIT)

    for api in APIS:
        for dtype, draw in draws(small=small):
            args = api.make(draw)
            try:
                clean = api.function(*args, **api.keywords)
            except (RuntimeError, NotImplementedError):
                continue
            if not isinstance(clean, Tensor) or not clean.is_floating_point() or not clean.numel():
                continue
            clean = clean.contiguous()
            place = int(draw.index(clean.numel(), 1))
            if not clean.view(-1)[place].isfinite() or clean.view(-1)[place] == 0:
                continue
            for units in (4, 8, 16, 64):
                put(f"one element off by {units} units", dtype, api, args, moved(clean, place, units))
            if dtype != torch.float32:
                continue
            for bit in (8, 12, 16, 22):
                put(f"bit {bit} of one element flipped", dtype, api, args, flipped(clean, place, bit))
            for name, narrow in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
                rounded = clean.to(narrow).to(dtype)
                if not torch.equal(rounded, clean):
                    put(f"result rounded to {name}", dtype, api, args, rounded)
            for bits in (7, 10):
                coarse = tuple(
                    cut(a.contiguous(), bits) if isinstance(a, Tensor) and a.dtype == dtype else a for a in args
                )
                wrong = api.function(*coarse, **api.keywords)
                if not torch.equal(wrong, clean) and wrong.isfinite().all():
                    put(f"inputs cut to {bits} bits", dtype, api, args, wrong)
    sums(put, small=small)
    return {row: {d: sum(v) / len(v) for d, v in by.items()} for row, by in seen.items()}


def sums(put: Callable[..., None], *, small: bool) -> None:
    """Errors of sums, of settings, of formulas."""
    by_name = {str(api): api for api in APIS}
    matmul, total = by_name["matmul"], by_name["sum rows"]
    for dtype, draw in draws(small=small):
        if draw.shape != "normal":
            continue
        x, w = matmul.make(draw)
        for narrow in (torch.bfloat16, torch.float16):
            acc = torch.zeros(x.shape[0], w.shape[1], dtype=narrow)
            for i in range(x.shape[1]):
                acc = acc + x[:, i : i + 1].to(narrow) * w[i : i + 1].to(narrow)
            if dtype in (torch.float32, torch.bfloat16):
                put(f"accumulated in {str(narrow)[6:]}, matmul", dtype, matmul, (x, w), acc.to(dtype))
        put("last term dropped, matmul", dtype, matmul, (x, w), x[:, :-1] @ w[:-1])
        (y, _) = total.make(draw)
        acc = torch.zeros(y.shape[0], dtype=torch.bfloat16)
        for i in range(y.shape[1]):
            acc = acc + y[:, i].to(torch.bfloat16)
        put("accumulated in bfloat16, sum", dtype, total, (y, -1), acc.to(dtype))
        put("last term dropped, sum", dtype, total, (y, -1), y[:, :-1].sum(-1))
        norm = by_name["layer_norm"]
        for scale, what in ((1.0, "inputs near 1"), (1e-3, "small inputs")):
            args = norm.make(draw)
            args = ((args[0] * scale).to(dtype), *args[1:])
            right = Api("norm", "Functional", "layer_norm", norm.make, {"eps": 1e-6})
            put(f"epsilon 1e-5 for 1e-6, {what}", dtype, right, args, F.layer_norm(*args, eps=1e-5))
        gelu, var = by_name["gelu"], by_name["var rows"]
        put("another approximation of gelu", dtype, gelu, (y,), F.gelu(y, approximate="tanh"))
        put("another divisor of a variance", dtype, var, (y, -1), torch.var(y, -1, correction=0))


# ---- printing


def print_calibration(cases: list[Case], outliers: int) -> None:
    print(f"{len(cases)} clean results of {len(APIS)} variants; 99.9 % quantile of the score")
    print("| family | float32 | bfloat16 | float16 | largest |")
    print("| --- | --- | --- | --- | --- |")
    families = list(dict.fromkeys(api.family for api in APIS))
    told = [c for c in cases if str(c.api) not in EXCEPTIONS]
    for family in families:
        here = [c for c in told if c.api.family == family]
        cells = [f"{quantile([c.score for c in here if c.dtype == d], 0.999):.2f}" for d in DTYPES]
        worst = max(here, key=lambda c: c.score)
        print(f"| {family} | {' | '.join(cells)} | {worst.score:.2f} ({worst.api}) |")
    rest = [c for c in cases if str(c.api) in EXCEPTIONS]
    worst = max(rest, key=lambda c: c.score)
    kind = str(worst.dtype).removeprefix("torch.")
    print(f"left out: {', '.join(EXCEPTIONS)}: largest {worst.score:.2f} ({worst.api}, {kind}, {worst.what})")
    above = sum(c.score > 1 for c in told) / max(1, len(told))
    print(
        f"above 1: {above:.2%}; above 3: {sum(c.score > 3 for c in told)}; above {LIMIT:g}: "
        f"{sum(c.score > LIMIT for c in told)}"
    )
    for c in sorted(told, key=lambda c: -c.score)[:outliers]:
        print(f"  {c.score:.3f} {c.api} {c.dtype} {c.what}")


def print_power(table: dict[str, dict[torch.dtype, float]]) -> None:
    print(f"share of injected errors that score above {LIMIT:g}")
    print("| injected | float32 | bfloat16 | float16 |")
    print("| --- | --- | --- | --- |")
    for row, by in table.items():
        cells = [f"{by[d]:.0%}" if d in by else "" for d in DTYPES]
        print(f"| {row} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one size, two kinds of inputs")
    parser.add_argument("--only", choices=("calibration", "power"))
    parser.add_argument("--outliers", type=int, default=0, help="also the largest clean scores")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only != "power":
        print_calibration(calibration(small=options.small), options.outliers)
    if options.only != "calibration":
        print_power(power(small=options.small))


if __name__ == "__main__":
    main()
