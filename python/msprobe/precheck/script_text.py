"""The stand-alone script that replays one call. Names between @ signs are filled in by generate.py."""

SCRIPT = '''#!/usr/bin/env python3
"""@TITLE@

Runs the call on a device and on the CPU in higher precision and prints the difference. Needs only torch.

    python @FILE@ [--device cpu|cuda|npu] [--candidate MODULE:FUNCTION] [--iterations N]

Exit status: 0 the two agree, 1 they do not. MODULE:FUNCTION is called as function(name, real, args, kwargs) in place of
the device's call.
@HISTORY@"""

import argparse
import importlib
import math
import os
import sys

import torch

NAME = "@NAME@"
FUNCTION = @FUNCTION@
DATA = @DATA@  # tensors, or None: they are drawn below
SPECS = @SPECS@  # of random tensors: shape, dtype, low, high
GRADIENT_SPECS = @GRADIENT_SPECS@
WANTS_GRAD = @WANTS_GRAD@  # which of them get gradients
BACKWARD = @BACKWARD@
RAISED = @RAISED@  # dtype of the reference; None: as recorded
AUTOCAST = @AUTOCAST@
RANDOM = @RANDOM@  # the call draws numbers: figures are shown, nothing is judged
SEED = @SEED@
ITERATIONS = @ITERATIONS@
# unit roundoff, explained error alone and per root of summed terms, least error that counts beside a baseline
LIMITS = {
    torch.float32: (2.0**-24, 256, 16, 16, 8),
    torch.float16: (2.0**-11, 32, 2, 4, 0.5),
    torch.bfloat16: (2.0**-8, 32, 2, 4, 0.5),
}


def arguments(t, device):
    """Positional and keyword arguments; t: the tensors."""
    return @ARGS@, @KWARGS@


def draw(spec, generator):
    shape, dtype, low, high = spec
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if not dtype.is_floating_point:
        return torch.randint(int(low), int(high) + 1, shape, generator=generator, dtype=torch.int64).to(dtype)
    tensor = (torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low).to(dtype)
    if tensor.numel():
        tensor.view(-1)[0], tensor.view(-1)[-1] = low, high
    return tensor


def inputs(iteration):
    if DATA is not None:
        data = torch.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), DATA), weights_only=True)
        return data["tensors"], data["gradients"]
    generator = torch.Generator().manual_seed(SEED + iteration)
    return [draw(s, generator) for s in SPECS], [s and draw(s, generator) for s in GRADIENT_SPECS]


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in flat(v)] if isinstance(value, (list, tuple)) else []


def raised(t):
    if t.dtype == torch.complex64:
        return t.to(torch.complex128)
    if RAISED is not None and t.dtype in (torch.float16, torch.bfloat16, torch.float32):
        return t.to(RAISED)
    return t.to(torch.float32) if str(t.dtype).startswith("torch.float8") else t


def run(tensors, gradients, device, convert, function):
    """Outputs and gradients of the call on a device."""
    leaves = [convert(t).to(device).clone() for t in tensors]
    for i in WANTS_GRAD if BACKWARD else ():
        leaves[i].requires_grad_(True)
    used = [t.clone() if t.requires_grad else t for t in leaves]
    torch.manual_seed(SEED)
    with torch.set_grad_enabled(BACKWARD):
        args, kwargs = arguments(used, device)
        outputs = flat(function(*args, **kwargs))
    found = []
    if BACKWARD:
        pairs = [(o, g) for o, g in zip(outputs, gradients) if g is not None and o.requires_grad]
        torch.autograd.backward([o for o, _ in pairs], [g.to(device).to(o.dtype) for o, g in pairs])
        found = [leaves[i].grad for i in WANTS_GRAD]
    return [("output", k, o.detach().cpu()) for k, o in enumerate(outputs)] + [
        ("gradient", k, g.detach().cpu()) for k, g in enumerate(found) if g is not None
    ]


def rms(t):
    t = t.double().abs()
    t = t[torch.isfinite(t)]
    return float((t * t).mean().sqrt()) if t.numel() else 0.0


def units(b, d, scale, unit):
    """Errors in rounding units: u (|b| + s)."""
    mask = torch.isfinite(b) & torch.isfinite(d)
    if not bool(mask.any()):
        return 0.0, 0.0, 0
    q = torch.where(mask, (d - b).abs() / (unit * (b.abs() + scale) + 1e-300), torch.zeros_like(b))
    return float(q.max()), float((q * q).mean().sqrt()), int(q.argmax())


def judge(what, bench, device, baseline, tensors):
    """A line about one output; True when the two agree."""
    head = f"{what} {device.dtype} {tuple(device.shape)}"
    if bench.shape != device.shape:
        print(f"{head}: FAIL: the reference has shape {tuple(bench.shape)}")
        return False
    if RANDOM:
        d, b = device.double(), bench.double()
        print(f"{head}: random: mean {d.mean():.6g} and {b.mean():.6g}, zeros {(d == 0).sum()} and {(b == 0).sum()}")
        return True
    if not (device.is_floating_point() or device.is_complex()):
        wrong = int((device != bench).sum())
        print(f"{head}: {'FAIL' if wrong else 'ok'}: {wrong} of {device.numel()} elements differ")
        return wrong == 0
    if device.is_complex():
        bench, device = torch.view_as_real(bench), torch.view_as_real(device)
        baseline = None if baseline is None else torch.view_as_real(baseline)
    unit, alone, per_term, least, least_rms = LIMITS.get(device.dtype, (2.0**-53, 256, 16, 16, 8))
    b, d = bench.double().reshape(-1), device.double().reshape(-1)
    classes = int(((torch.isnan(b) != torch.isnan(d)) | (torch.isinf(b) != torch.isinf(d))).sum())
    scale = max([rms(b), *(rms(t) for t in tensors if t.is_floating_point())])
    largest, mean, at = units(b, d, scale, unit)
    terms = max([t.numel() for t in tensors], default=1) / max(1, d.numel())
    limit, limit_rms = alone + per_term * math.sqrt(max(1.0, terms)), math.inf
    text = f"largest error {float((d - b).abs().nan_to_num(0).max()) if d.numel() else 0:.6g}"
    if baseline is not None:
        worst, mean_there, _ = units(b, baseline.double().reshape(-1), scale, unit)
        limit, limit_rms = max(least, 8 * worst), max(least_rms, 2.5 * mean_there)
        text += f", CPU in the same dtypes {worst:.4g} units"
    bad = bool(classes) or largest > limit or mean > limit_rms
    verdict = "FAIL" if bad else "ok"
    print(f"{head}: {verdict}: {text}; {largest:.4g} rounding units, rms {mean:.4g}, allowed {limit:.4g}")
    if bad and d.numel():
        print(f"    element {at}: device {float(d[at]):.17g}, reference {float(b[at]):.17g}")
    if classes:
        print(f"    NaN or infinity differ at {classes} elements")
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--candidate", default="")
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    given = parser.parse_args()
    if given.device.startswith("npu"):
        import torch_npu  # noqa: F401
    device_function = FUNCTION
    if given.candidate:
        module, _, name = given.candidate.partition(":")
        sys.path.insert(0, os.getcwd())
        candidate = getattr(importlib.import_module(module), name)

        def device_function(*args, **kwargs):
            return candidate(NAME, FUNCTION, list(args), kwargs)

    good = True
    for iteration in range(given.iterations):
        tensors, gradients = inputs(iteration)
        reference = run(tensors, gradients, "cpu", raised, FUNCTION)
        with torch.autocast(given.device.partition(":")[0], dtype=AUTOCAST, enabled=AUTOCAST is not None):
            found = run(tensors, gradients, given.device, lambda t: t, device_function)
        baseline = None
        if given.candidate or not given.device.startswith("cpu"):
            try:
                with torch.autocast("cpu", dtype=AUTOCAST, enabled=AUTOCAST is not None):
                    baseline = run(tensors, gradients, "cpu", lambda t: t, FUNCTION)
            except RuntimeError as e:
                print(f"no baseline: {e}")
        if len(found) != len(reference):
            print(f"FAIL: {len(found)} results on the device, {len(reference)} in the reference")
            good = False
        for k, ((what, n, b), (_, _, d)) in enumerate(zip(reference, found)):
            other = baseline[k][2] if baseline is not None and len(baseline) == len(reference) else None
            scales = [g for g in gradients if g is not None] if what == "gradient" else tensors
            good = judge(f"{what} {n}", b, d, other, scales) and good
    print(f"{NAME}: {'the device agrees with the reference' if good else 'the device is wrong'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
'''
