"""Every call of a random function starts from the same generator state (`seed_all(is_enhanced=True)`, dump.md 20)."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

PYTHON_RANDOM = (
    "betavariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits", "lognormvariate",
    "normalvariate", "paretovariate", "randbytes", "randint", "random", "randrange", "sample", "shuffle", "triangular",
    "uniform", "vonmisesvariate", "weibullvariate",
)  # fmt: skip
NUMPY_RANDOM = (
    "beta", "binomial", "bytes", "chisquare", "choice", "dirichlet", "exponential", "f", "gamma", "geometric", "gumbel",
    "hypergeometric", "laplace", "logistic", "lognormal", "logseries", "multinomial", "multivariate_normal",
    "negative_binomial", "noncentral_chisquare", "noncentral_f", "normal", "pareto", "permutation", "poisson", "power",
    "rand", "randint", "randn", "random", "random_integers", "random_sample", "ranf", "rayleigh", "sample", "shuffle",
    "standard_cauchy", "standard_exponential", "standard_gamma", "standard_normal", "standard_t", "triangular",
    "uniform", "vonmises", "wald", "weibull", "zipf",
)  # fmt: skip
TORCH_RANDOM = (
    "bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm",
)  # fmt: skip
TENSOR_RANDOM = (
    "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial", "normal_", "random_",
    "uniform_",
)  # fmt: skip


class States:
    """The generator states of the moment of `install()`."""

    def __init__(self) -> None:
        self._python = random.getstate()
        numpy: Any = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
        npu = _npu()
        self._npu = npu.get_rng_state_all() if npu is not None else None

    def restore(self) -> None:
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        npu = _npu()
        if self._npu is not None and npu is not None:
            npu.set_rng_state_all(self._npu)


def _npu() -> Any:
    npu: Any = getattr(torch, "npu", None) if "torch_npu" in sys.modules else None
    return npu if npu is not None and npu.is_available() else None


def _fixed(function: Callable[..., Any], states: States) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        states.restore()
        try:
            return function(*args, **kwargs)
        finally:
            states.restore()

    call.__msprobe_fixed__ = True  # type: ignore[attr-defined]
    return call


def install() -> Callable[[], None]:
    """Record the states once and wrap the functions; the answer takes the wrappers off."""
    states = States()
    owners: list[tuple[Any, tuple[str, ...]]] = [(random, PYTHON_RANDOM), (torch, TORCH_RANDOM)]
    owners.append((torch.Tensor, TENSOR_RANDOM))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        owners.append((numpy.random, NUMPY_RANDOM))
    placed: list[tuple[Any, str, Any]] = []
    for owner, names in owners:
        for name in names:
            function = getattr(owner, name, None)
            if function is not None and not hasattr(function, "__msprobe_fixed__"):
                placed.append((owner, name, vars(owner).get(name)))
                setattr(owner, name, _fixed(function, states))

    def uninstall() -> None:
        for owner, name, own in reversed(placed):
            if own is None:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, own)

    return uninstall
