"""Collectives over gloo with several processes: every kind is recorded once, with the results that it has without us.

Rank r brings four times r + 1, so that every value below is plain arithmetic.
"""

from __future__ import annotations

import capture_ranks
import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")


def means(value):
    """Of every tensor its mean, of every other leaf its value."""
    if isinstance(value, list):
        return [means(v) for v in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "torch.Tensor":
        return value["Mean"]
    return value["value"] if "value" in value else {k: means(v) for k, v in value.items()}


def expected(rank: int, n: int) -> dict[str, tuple[list, list]]:
    """Name -> (positional inputs, output) of rank `rank` among `n`."""
    own, total, every = rank + 1.0, n * (n + 1) / 2, [i + 1.0 for i in range(n)]
    shares = [own * i for i in range(n)]
    after, before = (rank + 1) % n, (rank - 1) % n
    entries = {
        "all_reduce.0": ([own], [total]),
        "all_reduce.1": ([own], [float(n), "RedOpType.MAX", True]),
        "reduce.0": ([own], [total if rank == 0 else None, 0]),
        "broadcast.0": ([own], [2.0, 1]),
        "all_gather.0": ([None, own], [every, own]),
        "all_gather_into_tensor.0": ([], [total / n, own]),  # by keyword; the mean of all
        "reduce_scatter.0": ([None, shares], [total * rank, shares]),
        "reduce_scatter_tensor.0": ([None, sum(shares) / n], [total * rank, sum(shares) / n]),
        "scatter.0": ([None, every if rank == 0 else None], [own, every if rank == 0 else None, 0]),
        "gather.0": ([own, None], [own, every if rank == 0 else None, 0]),
        "all_to_all.0": ([None, shares], [[(i + 1.0) * rank for i in range(n)], shares]),
        "all_to_all_single.0": ([None, float(rank)], [(n - 1) / 2, float(rank)]),
        "isend.0": ([own, after], [None, after]),
        "irecv.0": ([None, before], [before + 1.0, before]),
    }
    if rank == 0:
        entries["send.0"] = ([8.0], [8.0, 1])
    if rank == 1:
        entries["recv.0"] = ([None], [8.0, 0])
    return entries


def check_collectives(ranks, folder):
    answers = capture_ranks.run("collectives", ranks, folder)
    assert [a["same"] for a in answers] == [True] * ranks  # return values and buffers
    for rank in range(ranks):
        data = capture_ranks.entries(folder, rank)
        names = [n.removeprefix("Distributed.").removesuffix(".forward") for n in data if n.startswith("Distributed.")]
        want = expected(rank, ranks)
        assert set(names) == {*want, "batch_isend_irecv.0"}
        for name, (inputs, output) in want.items():
            entry = data[f"Distributed.{name}.forward"]
            got_inputs, got_output = means(entry["input_args"]), means(entry["output"])
            if name == "reduce.0" and rank > 0:  # what others hold afterwards is not defined
                got_output[0] = None
            assert (got_inputs, got_output) == (inputs, output), (rank, name)
            buffers = [
                f"input.{i}" for i, value in enumerate(inputs) if value is None and (name, i) != ("scatter.0", 1)
            ]
            assert set(buffers) <= set(entry.get("absent", {})), name
        gathered = data["Distributed.all_gather_into_tensor.0.forward"]
        assert gathered["input_kwargs"]["output_tensor"] is None  # not what happened to lie there
        assert gathered["absent"]["kwargs.output_tensor"]["code"] == "filtered"
        batch = data["Distributed.batch_isend_irecv.0.forward"]
        (asked,), (done,) = means(batch["input_args"]), means(batch["output"])
        after, before = (rank + 1) % ranks, (rank - 1) % ranks
        assert [(o["op"], o["peer"], o["tensor"]) for o in asked] == [
            ("isend", after, rank + 1.0),
            ("irecv", before, None),
        ]
        assert [o["tensor"] for o in done] == [rank + 1.0, before + 1.0]


def test_capture_collectives_of_three_ranks(tmp_path):
    check_collectives(3, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_capture_collectives_of_up_to_eight_ranks(ranks, tmp_path):
    check_collectives(ranks, tmp_path)


def test_capture_fsdp_records_modules_parameters_and_gradients(tmp_path):
    """Values against the same model without FSDP: forward and backward of a rank are those of its own data."""
    capture_ranks.run("fsdp", 2, tmp_path)
    for rank in range(2):
        plain, gradients = capture_ranks.plain_model(), []
        for r in range(2):
            plain.zero_grad()
            plain(capture_ranks.input_of(r)).pow(2).mean().backward()
            gradients.append({n: p.grad.clone() for n, p in plain.named_parameters()})
        for kind in capture_ranks.FSDP_KINDS:
            data = capture_ranks.entries(tmp_path / kind, rank)
            named = {n.replace("_fsdp_wrapped_module.", ""): e for n, e in data.items()}
            check_modules(named, kind, plain, capture_ranks.input_of(rank))
            check_parameter_gradients(named, kind, gradients, rank)


LAYERS = {"0": (5, 8), "1.a": (5, 16), "1.b": (5, 8), "2": (5, 2)}


def check_modules(named, kind, plain, x):
    outputs = {}
    for name in LAYERS:
        module = plain.get_submodule(name)
        module.register_forward_hook(lambda m, a, out, name=name: outputs.__setitem__(name, out.detach().double()))
    plain(x)
    for name, shape in LAYERS.items():
        forward = named[f"Module.{name}.Linear.forward.0"]
        leaf = forward["output"][0]
        assert tuple(leaf["shape"]) == shape
        assert leaf["Norm"] == pytest.approx(outputs[name].norm().item(), rel=1e-5)
        if kind != "flat":  # there parameters of one shard are one: next line
            weight = plain.get_submodule(name).weight
            assert forward["parameters"]["weight"]["Norm"] == pytest.approx(weight.double().norm().item(), rel=1e-6)
        assert named[f"Module.{name}.Linear.backward.0"]["input"][0]["shape"] == list(shape)
    block = named[f"Module.1.{'FSDPBlock' if kind == 'fully_shard' else 'Block'}.forward.0"]
    if kind == "flat":
        assert block["parameters"]["_flat_param"]["shape"] == [8 * 16 + 16 + 16 * 8 + 8]


def check_parameter_gradients(named, kind, gradients, rank):
    """FSDP: of this rank, before they are added up over the ranks. fully_shard: this rank's part of the mean."""
    found = {n.rpartition(".")[0]: e for n, e in named.items() if ".parameters_grad." in n}
    if kind == "flat":
        block = [g for n, g in gradients[rank].items() if n.startswith("1.")]
        leaf = found["Module.1.Block.parameters_grad"]["_flat_param"][0]
        assert leaf["Norm"] == pytest.approx(torch.cat([g.flatten() for g in block]).double().norm().item(), rel=1e-5)
        return
    assert len(found) == len(LAYERS)
    for name, gradient in gradients[rank].items():
        layer, _, parameter = name.rpartition(".")
        leaf = found[f"Module.{layer}.Linear.parameters_grad"][parameter][0]
        want = gradient
        if kind == "fully_shard":
            want = ((gradients[0][name] + gradients[1][name]) / 2).chunk(2)[rank]
        assert leaf["Norm"] == pytest.approx(want.double().norm().item(), rel=1e-5, abs=1e-9), (kind, name)
