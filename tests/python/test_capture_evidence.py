"""Evidence beside upstream's keys: what a call changed, where tensors come from, autocast, random states, hashes."""

from __future__ import annotations

import base64
import json

import pytest
import torch
import torch.nn.functional as F
from capture_tools import record
from torch import nn

UPSTREAM_LEAF = ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"]


def origin(leaf):
    return leaf["from"]["entry"], leaf["from"]["leaf"]


def test_capture_evidence_names_the_producer_of_each_input(tmp_path):
    def run():
        h = F.linear(torch.ones(4, 3), torch.ones(5, 3))
        torch.relu(h)
        torch.sigmoid(h.detach())  # an unrecorded call between them: the memory is the same
        torch.tanh(torch.ones(4, 5))  # nobody's

    data = record(tmp_path, "L1", run).data
    assert origin(data["Torch.relu.0.forward"]["input_args"][0]) == ("Functional.linear.0.forward", "output.0")
    assert origin(data["Torch.sigmoid.0.forward"]["input_args"][0]) == ("Functional.linear.0.forward", "output.0")
    assert "from" not in data["Torch.tanh.0.forward"]["input_args"][0]


def test_capture_evidence_says_which_elements_a_view_is(tmp_path):
    def run():
        h = F.linear(torch.ones(4, 3), torch.ones(5, 3))
        torch.relu(h[1:, 2])  # indexing is not recorded: elements 7, 12, 17 of h
        torch.sigmoid(torch.split(h, 2)[1])

    data = record(tmp_path, "L1", run).data
    view = data["Torch.relu.0.forward"]["input_args"][0]["from"]
    assert view == {
        "entry": "Functional.linear.0.forward",
        "leaf": "output.0",
        "view": {"offset": 7, "strides": [5]},
    }
    assert origin(data["Torch.sigmoid.0.forward"]["input_args"][0]) == ("Torch.split.0.forward", "output.1")


def test_capture_evidence_counts_writes_that_no_recorded_call_made(tmp_path):
    def run():
        h = torch.relu(torch.ones(3))
        with torch.no_grad():
            h.copy_(torch.zeros(3))  # not a listed name
        torch.sigmoid(h)

    leaf = record(tmp_path, "L1", run).data["Torch.sigmoid.0.forward"]["input_args"][0]
    assert leaf["from"] == {"entry": "Torch.relu.0.forward", "leaf": "output.0", "writes": 1}


@pytest.mark.no_sanitizer  # which keeps freed memory aside
def test_capture_evidence_memory_that_was_freed_has_no_producer(tmp_path):
    """The allocator hands the same address out again; that is another tensor."""
    seen = []

    def run():
        for _ in range(50):
            h = torch.relu(torch.ones(1000))
            seen.append(h.data_ptr())
            del h
            fresh = torch.full((1000,), 2.0)
            seen.append(fresh.data_ptr())
            torch.sigmoid(fresh)
            del fresh

    data = record(tmp_path, "L1", run).data
    assert len(set(seen)) < len(seen)  # addresses were used again
    leaves = [e["input_args"][0] for n, e in data.items() if n.startswith("Torch.sigmoid.")]
    assert len(leaves) == 50 and all("from" not in leaf or "full" in leaf["from"]["entry"] for leaf in leaves)


def test_capture_evidence_holds_no_memory(tmp_path):
    import weakref

    def run():
        h = torch.relu(torch.ones(5))
        storage = h.untyped_storage()._weak_ref()
        ref = weakref.ref(h)
        del h
        assert ref() is None and torch.UntypedStorage._expired(storage)
        torch.UntypedStorage._free_weak_ref(storage)

    record(tmp_path, "L1", run)


@pytest.mark.parametrize("device", ["host", "force"])
def test_capture_evidence_tells_what_unrecorded_code_made_from_parameters(tmp_path, device):
    weight = nn.Parameter(torch.ones(4, 3))

    def run():
        h = F.linear(torch.ones(2, 3), weight)
        torch.relu(h[:, [0, 2]])  # a copy that nothing records
        torch.relu(torch.ones(3))

    data = record(tmp_path, "L1", run, device_statistics=device).data
    linear, first, second = (
        data[f"{name}.forward"]["input_args"] for name in ("Functional.linear.0", "Torch.relu.0", "Torch.relu.1")
    )
    assert first[0]["derived"] is True and "from" not in first[0]
    assert not any("derived" in leaf for leaf in (*linear, *second) if leaf)
    (tmp_path / "none").mkdir()
    plain = record(tmp_path / "none", "L1", run, evidence="none").data["Torch.relu.0.forward"]["input_args"][0]
    assert list(plain) == UPSTREAM_LEAF


_storage_owners = getattr(torch._C, "_storage_Use_Count", None)


def owners(tensor):
    return _storage_owners(torch._C._storage_address(tensor))


def owners_in_a_step(model, x):
    """How many owners the storages of a step have: parameters, input, a result, a view of it, gradients, the loss."""
    model.zero_grad()
    h = model(x)
    view = h[1:]
    loss = torch.relu(h).sum()
    loss.backward()
    gradients = [p.grad for p in model.parameters()]
    return [owners(t) for t in (*model.parameters(), x, h, view, *gradients, loss)]


@pytest.mark.skipif(
    not (_storage_owners and hasattr(torch._C, "_storage_address")), reason="this PyTorch cannot count owners"
)
@pytest.mark.parametrize("evidence", ["none", "light", "full"])
@pytest.mark.parametrize("mode", ["statistics", "md5", "sketch", "tensor"])
def test_capture_evidence_owns_no_storage(tmp_path, evidence, mode):
    """A storage with one more owner is neither added to in place nor reused by PyTorch: memory and time."""
    model, x = nn.Linear(3, 4), torch.ones(2, 3)
    expected = owners_in_a_step(model, x)
    seen = []
    model, x = nn.Linear(3, 4), torch.ones(2, 3)
    settings = {"task": "tensor"} if mode == "tensor" else {"section": {"summary_mode": mode}}
    record(tmp_path, "mix", lambda: seen.append(owners_in_a_step(model, x)), model, evidence=evidence, **settings)
    assert seen == [expected]
    assert owners_in_a_step(model, x) == expected


def test_capture_evidence_gradients_have_producers_too(tmp_path):
    def run():
        w = torch.ones(3, 3, requires_grad=True)
        torch.sigmoid(torch.matmul(torch.ones(2, 3), w)).sum().backward()

    data = record(tmp_path, "L1", run).data
    assert origin(data["Torch.matmul.0.backward"]["input"][0]) == ("Torch.sigmoid.0.backward", "output.0")


def test_capture_evidence_parameters_come_from_the_update_of_the_step_before(tmp_path):
    from capture_tools import debugger, read_step

    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with debugger(tmp_path, "L1") as tool:
        for _ in range(2):
            tool.start(model)
            optimizer.zero_grad()
            model(torch.ones(4, 3)).sum().backward()
            optimizer.step()
            tool.stop()
            tool.step()
    weight = read_step(tmp_path, 1).data["Functional.linear.0.forward"]["input_args"][1]
    assert weight["from"] == {"entry": "Tensor.add_.0.forward", "leaf": "output.0", "step": 0}


def test_capture_evidence_what_was_changed_in_place_is_described_after_the_call(tmp_path):
    norm = nn.BatchNorm1d(3, momentum=0.5)

    def run():
        x = torch.zeros(2, 3)
        x[0] = 2
        y = torch.ones(3)
        y.add_(1)
        out = torch.empty(3)
        torch.add(y, 1, out=out)
        norm(torch.tensor([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]))
        torch.relu(x)

    data = record(tmp_path, "mix", run, norm).data
    changed = data["Tensor.__setitem__.0.forward"]["mutated"]
    assert list(changed) == ["input.0"] and changed["input.0"]["Max"] == 2
    # Changed and returned: described once.
    assert data["Tensor.add_.0.forward"]["mutated"] == {"input.0": {"same_as": "output.0"}}
    assert data["Torch.add.0.forward"]["mutated"] == {"kwargs.out": {"same_as": "output.0"}}
    running = data["Functional.batch_norm.0.forward"]["mutated"]
    assert list(running) == ["input.1", "input.2"]
    assert (running["input.1"]["Min"], running["input.1"]["Max"]) == (1, 2)  # half of the means 2, 3, 4
    assert running["input.2"]["Max"] == 1.5  # half of 1 and half of the unbiased variance 2
    module = data["Module.BatchNorm1d.forward.0"]["mutated"]
    assert module["buffers.running_mean"]["Max"] == 2 and module["buffers.num_batches_tracked"]["Max"] == 1
    assert origin(data["Torch.relu.0.forward"]["input_args"][0]) == ("Tensor.__setitem__.0.forward", "mutated.input.0")
    assert "mutated" not in data["Torch.relu.0.forward"]


def test_capture_evidence_changed_tensors_inside_containers_and_files_of_them(tmp_path):
    def run():
        torch._foreach_add_([torch.zeros(2), torch.ones(2)], 1)
        torch.zeros(3)[:] = 4

    dump = record(tmp_path, "L1", run, task="tensor", risk_level="EVERY")
    leaf = dump.data["Tensor.__setitem__.0.forward"]["mutated"]["input.0"]
    assert leaf["data_name"] == "Tensor.__setitem__.0.forward.mutated.input.0.pt"
    saved = torch.load(dump.folder / "dump_tensor_data" / leaf["data_name"])
    assert torch.equal(saved, torch.full((3,), 4.0))


def test_capture_evidence_autocast_is_noted_with_its_type(tmp_path):
    linear = nn.Linear(3, 2)

    def run():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            linear(torch.ones(1, 3))
        linear(torch.ones(1, 3))

    data = record(tmp_path, "mix", run, linear).data
    for name in ("Functional.linear.{}.forward", "Module.Linear.forward.{}"):
        assert data[name.format(0)]["autocast"] == {"cpu": "torch.bfloat16"}
        assert "autocast" not in data[name.format(1)]


def step_of(model, optimizer):
    def run():
        optimizer.zero_grad()
        F.dropout(model(torch.ones(4, 3)), 0.5).sum().backward()
        optimizer.step()

    return run


def test_capture_evidence_none_leaves_the_keys_of_the_original_tool(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True))
    run = step_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = record(tmp_path, "mix", run, model, evidence="none").data
    for name, entry in data.items():
        assert set(entry) <= {"input_args", "input_kwargs", "input", "output", "parameters", "weight", "bias"}, name
    leaf = data["Functional.relu.0.forward"]["input_args"][0]
    assert list(leaf) == UPSTREAM_LEAF


def test_capture_evidence_comes_after_the_keys_of_the_original_tool(tmp_path):
    def run():
        torch.relu(torch.relu(torch.tensor([1.0, float("inf")])))

    for task, keys in (("statistics", []), ("tensor", ["data_name"])):
        folder = tmp_path / task
        folder.mkdir()
        leaf = record(folder, "L1", run, task=task, evidence="full").data["Torch.relu.1.forward"]["input_args"][0]
        assert list(leaf) == [*UPSTREAM_LEAF, *keys, "nan", "inf", "finite_max", "finite_min", "hash64", "from"]


def test_capture_evidence_full_hashes_every_tensor(tmp_path):
    def run():
        x = torch.arange(6.0)
        torch.relu(x)
        torch.relu(x.reshape(2, 3).t().t())  # the same elements in the same order
        torch.relu(x.flip(0))

    data = record(tmp_path, "L1", run, evidence="full").data
    hashes = [data[f"Torch.relu.{i}.forward"]["input_args"][0]["hash64"] for i in range(3)]
    assert all(len(h) == 16 and int(h, 16) for h in hashes)
    assert hashes[0] == hashes[1] != hashes[2]  # order counts, layout does not


def test_capture_evidence_full_keeps_the_generator_state_of_random_calls(tmp_path):
    outputs = []

    def run():
        torch.manual_seed(5)
        torch.relu(torch.ones(3))
        outputs.append(F.dropout(torch.ones(50), 0.5))
        generator = torch.Generator().manual_seed(7)
        outputs.append(torch.bernoulli(torch.full((20,), 0.5), generator=generator))
        F.dropout(torch.ones(3), 0.5, training=False)

    data = record(tmp_path, "L1", run, evidence="full").data
    with_state = [n for n, e in data.items() if "rng" in e]
    assert with_state == ["Functional.dropout.0.forward", "Torch.bernoulli.0.forward"]
    state = data["Functional.dropout.0.forward"]["rng"]
    assert list(state) == ["cpu"]
    torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(state["cpu"])), dtype=torch.uint8))
    assert torch.equal(F.dropout(torch.ones(50), 0.5), outputs[0])
    given = torch.Generator()
    text = data["Torch.bernoulli.0.forward"]["rng"]["generator"]
    given.set_state(torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8))
    assert torch.equal(torch.bernoulli(torch.full((20,), 0.5), generator=given), outputs[1])


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_capture_evidence_full_hashes_models_and_optimizers_at_the_begin_of_a_step(level, tmp_path):
    from capture_tools import debugger, read_step

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.125)
    run = step_of(model, optimizer)
    with debugger(tmp_path, level, evidence="full") as tool:
        for _ in range(2):
            tool.start(model)
            run()
            tool.stop()
            tool.step()
    first, second = (read_step(tmp_path, i).header["msprobe"]["state"] for i in range(2))
    (before,), (after,) = first["models"], second["models"]
    assert before["class"] == "Sequential"
    assert list(before["parameters"]) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert list(before["buffers"]) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert before["parameters"]["0.weight"] != after["parameters"]["0.weight"]
    assert before["parameters"]["0.weight"]["shape"] == [3, 3]
    assert first["optimizers"][0]["class"] == "Adam" and first["optimizers"][0]["state"] == {}
    assert first["optimizers"][0]["groups"][0]["lr"] == 0.125
    assert second["optimizers"][0]["state"]["0.exp_avg"]["shape"] == [3, 3]
    # Two equal starts have equal hashes, a changed bit another.
    torch.manual_seed(0)
    again = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    (tmp_path / "again").mkdir()
    with debugger(tmp_path / "again", level, evidence="full") as tool:
        tool.start(again)
        tool.stop()
        tool.step()
    assert read_step(tmp_path / "again").header["msprobe"]["state"]["models"] == first["models"]


def test_capture_reuse_takes_statistics_of_unchanged_memory_and_marks_them(tmp_path):
    def run():
        h = torch.relu(torch.ones(3))
        torch.sigmoid(h)
        h.numpy()[:] += 1  # the version counter does not see it: this is why reuse is off by default
        torch.tanh(h)

    data = record(tmp_path, "L1", run, reuse="version").data
    leaf = data["Torch.sigmoid.0.forward"]["input_args"][0]
    assert leaf["reused"] is True and leaf["Max"] == 1
    assert data["Torch.tanh.0.forward"]["input_args"][0]["Max"] == 1
    plain = record(tmp_path / "plain", "L1", run).data if (tmp_path / "plain").mkdir() is None else {}
    assert plain["Torch.tanh.0.forward"]["input_args"][0]["Max"] == 2
    assert "reused" not in json.dumps(plain)


def test_capture_reuse_measures_again_after_a_write(tmp_path):
    def run():
        h = torch.relu(torch.ones(3))
        h.add_(1)
        torch.sigmoid(h)
        with torch.no_grad():
            h.copy_(torch.full((3,), 7.0))
        torch.tanh(h)

    data = record(tmp_path, "L1", run, reuse="version").data
    assert data["Torch.sigmoid.0.forward"]["input_args"][0]["Max"] == 2
    assert data["Torch.tanh.0.forward"]["input_args"][0]["Max"] == 7


def test_capture_full_evidence_of_fake_tensors_fails_nowhere(tmp_path):
    """A mode of the user does not see how states of generators are read and compared."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def run():
        with FakeTensorMode():
            model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
            F.dropout(torch.relu(model(torch.ones(2, 3))) + torch.rand(3), 0.5).sum().backward()

    dump = record(tmp_path, "L1", run, evidence="full")
    assert dump.header["msprobe"]["counts"]["failed"] == 0
    assert "Functional.dropout.0.forward" in dump.data
    assert all("hash64" not in leaf for e in dump.data.values() for leaf in e.get("output", []) if leaf)
