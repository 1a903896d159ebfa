# Made by tools/make_stub.py; do not edit.
# ruff: noqa
# fmt: off
from types import ModuleType
from typing import Any

from collections.abc import Sequence
from typing import Annotated
from numpy.typing import NDArray

__version__: str
capture: ModuleType

def main(argv: Sequence[str]) -> int:
    """
    Run the command line (argv[0] is the program's name) and return its exit status.

    SIGINT and SIGTERM are handled by the command itself while it runs.
    """

class Collector:
    """One configured collection (used by msprobe.pytorch)."""

    def __init__(self, config_path: str | None, task: str | None, dump_path: str | None, level: str | None, steps_json: str | None, log: object, narrow_path: str | None = None) -> None: ...

    def differences(self, config_path: str | None, task: str | None, dump_path: str | None, level: str | None, steps_json: str | None, narrow_path: str | None = None) -> list[str]:
        """What another construction with these arguments would change, as text."""

    def start(self, rank: int | None, scheduled_tokens: Sequence[tuple[str, int]] | None = None) -> bool:
        """Opens the current step; whether this step and rank are recorded."""

    def begin_recording(self, unit: bool = False) -> None:
        """Hooks record from now on; unit: only module hooks, whatever the level."""

    def set_unit(self, on: bool) -> None:
        """Whether modules are wanted whatever the level says."""

    def end_recording(self) -> None:
        """Hooks fall silent; open entries are written."""

    def stop(self) -> None:
        """Flushes; counters go on."""

    def end_step(self) -> None:
        """Finishes the files of the step."""

    def close(self) -> None:
        """Finishes whatever is open."""

    def attach(self) -> None:
        """Makes this the collection that hooks report to."""

    def set_state(self, json: str) -> None:
        """The state of the program when the step began, for the closing block."""

    def detach(self) -> None:
        """Hooks report to nobody."""

    def take_over(self, before: Collector) -> None:
        """Goes on where another collection of this process stands, which ends."""

    def drain_log(self) -> None:
        """Hands on the messages that wait."""

    def after_fork(self) -> None:
        """In a forked child: forgets everything, writes nothing."""

    def set_init_step(self, step: int) -> None: ...

    def set_environment(self, torch_version: str, python_version: str, world_size: int | None) -> None: ...

    @property
    def recording(self) -> bool: ...

    @property
    def terminated(self) -> bool: ...

    @property
    def step(self) -> int: ...

    @property
    def wants_modules(self) -> bool: ...

    @property
    def wants_apis(self) -> bool: ...

    @property
    def wants_parameter_grads(self) -> bool: ...

    @property
    def rank_dir(self) -> str: ...

    @property
    def written(self) -> int: ...

    @property
    def filtered(self) -> int: ...

    @property
    def failed(self) -> int: ...

    @property
    def level(self) -> str: ...

    @property
    def task(self) -> str: ...

    @property
    def dump_enable(self) -> bool | None: ...

    @property
    def added_apis(self) -> list[tuple[str, list[str]]]: ...

    @property
    def custom_op_namespaces(self) -> list[str] | None: ...

    @property
    def compiled_as_leaf(self) -> bool: ...

    @property
    def evidence(self) -> str: ...

    @property
    def strict(self) -> bool: ...

    def register_module(self, path: str, class_name: str) -> int:
        """The number of a module; the same pair gives the same number."""

    def enter_phase(self, name: str) -> None: ...

    def leave_phase(self) -> None: ...

class CompareOptions:
    """
    What to compare and how; columns and files of the 8.x releases unless old_face is false.
    """

    def __init__(self, target: str, golden: str, output_dir: str) -> None: ...

    @property
    def old_face(self) -> bool: ...

    @old_face.setter
    def old_face(self, arg: bool, /) -> None: ...

    @property
    def stack_path(self) -> str | None:
        """Shown with stack_mode; without it stack.json beside the target."""

    @stack_path.setter
    def stack_path(self, arg: str | None, /) -> None: ...

    @property
    def stack_mode(self) -> bool: ...

    @stack_mode.setter
    def stack_mode(self, arg: bool, /) -> None: ...

    @property
    def advisor(self) -> bool: ...

    @advisor.setter
    def advisor(self, arg: bool, /) -> None: ...

    @property
    def highlight(self) -> bool: ...

    @highlight.setter
    def highlight(self, arg: bool, /) -> None: ...

    @property
    def xlsx(self) -> bool:
        """Instead of csv, when old_face is false."""

    @xlsx.setter
    def xlsx(self, arg: bool, /) -> None: ...

    @property
    def fuzzy(self) -> bool: ...

    @fuzzy.setter
    def fuzzy(self, arg: bool, /) -> None: ...

    @property
    def row_log(self) -> bool: ...

    @row_log.setter
    def row_log(self, arg: bool, /) -> None: ...

    @property
    def data_mapping(self) -> list[tuple[str, str]] | None:
        """Pairs of row names, target first."""

    @data_mapping.setter
    def data_mapping(self, arg: Sequence[tuple[str, str]] | None, /) -> None: ...

    @property
    def cell_mapping(self) -> list[tuple[str, str]] | None:
        """Pairs of module names or classes, target first."""

    @cell_mapping.setter
    def cell_mapping(self, arg: Sequence[tuple[str, str]] | None, /) -> None: ...

    def set_api_mapping(self, path: str) -> None:
        """
        Functions of a MindSpore target, from a YAML file; empty: those of like names meet.
        """

    def set_layer_mapping(self, path: str) -> None:
        """
        Pair by place in the module tree; a YAML file renames children, empty: none.
        """

    @property
    def rules(self) -> str:
        """default, base, upstream, or the path of a YAML file; reads: file."""

    @rules.setter
    def rules(self, arg: str, /) -> None: ...

    @property
    def suffix(self) -> str:
        """Of file names, for two files only."""

    @suffix.setter
    def suffix(self, arg: str, /) -> None: ...

    @property
    def workers(self) -> int:
        """Threads; 0 = all cores."""

    @workers.setter
    def workers(self, arg: int, /) -> None: ...

    def set_metrics(self, source: object) -> None:
        """
        Metrics of yours, tensor dumps: a folder of alg_<name>.py, or names and functions.
        """

    @property
    def resume(self) -> bool:
        """Take over what an interrupted run had compared."""

    @resume.setter
    def resume(self, arg: bool, /) -> None: ...

    @property
    def ranks(self) -> list[int]:
        """Only these ranks of folders; empty: all."""

    @ranks.setter
    def ranks(self, arg: Sequence[int], /) -> None: ...

    @property
    def steps(self) -> list[int]:
        """Only these steps of folders of steps; empty: all."""

    @steps.setter
    def steps(self, arg: Sequence[int], /) -> None: ...

    @property
    def backend(self) -> str:
        """Training against inference: fsdp or megatron; empty: no."""

    @backend.setter
    def backend(self, arg: str, /) -> None: ...

    @property
    def culprit(self) -> bool | None:
        """
        Search the operator at fault; None: when old_face is false and the dumps tell.
        """

    @culprit.setter
    def culprit(self, arg: bool | None, /) -> None: ...

    @property
    def loss_impact(self) -> bool:
        """Effects of all introduced errors on the loss."""

    @loss_impact.setter
    def loss_impact(self, arg: bool, /) -> None: ...

    @property
    def keep_rows(self) -> bool:
        """Keep all cells for RankResult.rows()."""

    @keep_rows.setter
    def keep_rows(self, arg: bool, /) -> None: ...

class Culprit:
    """
    One finding of the search for the operator at fault (docs/culprit.md); figures that its rule does not have are None.
    """

    @property
    def kind(self) -> str:
        """
        argument, structure, introduced, accumulate, state, glue, wired or output.
        """

    @property
    def entry(self) -> str | None:
        """Of the target; None: the golden run has a call more at the end."""

    @property
    def golden_entry(self) -> str | None:
        """Of the golden run; None: it makes no such call."""

    @property
    def leaf(self) -> str | None:
        """Which tensor of the entry, as "output.0"; None: the call itself."""

    @property
    def rule(self) -> int:
        """Number of the rule in docs/culprit.md."""

    @property
    def code(self) -> str | None:
        """Where the call stands, as file:line; None: no stack was recorded."""

    @property
    def sentence(self) -> str:
        """What is wrong, in words."""

    @property
    def count(self) -> int:
        """How often the same API shows the same."""

    @property
    def consequences(self) -> int:
        """How many entries deviate because of the first finding."""

    @property
    def numbers(self, /) -> dict[str, float]:
        """All figures, as in the summary."""

    @property
    def score(self) -> float | None:
        """
        Largest error of an element, in errors that rounding explains. Only replays have one.
        """

    @property
    def golden_score(self) -> float | None:
        """The same on the golden side."""

    @property
    def p_value(self) -> float | None:
        """
        How likely a right call has such a score; a rank on devices that were not calibrated.
        """

    @property
    def introduced(self) -> float | None:
        """Error that the call makes, relative to its result."""

    @property
    def inherited(self) -> float | None:
        """Error that came in, relative to its result."""

    @property
    def amplification(self) -> float | None:
        """How much the call enlarges what comes in."""

    @property
    def deviation(self) -> float | None:
        """Distance to the golden run, relative. No replays."""

    @property
    def limit(self) -> float | None:
        """What the score or the deviation is measured against."""

    @property
    def loss_impact(self) -> float | None:
        """Effect of its error on the loss."""

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

class CulpritSearch:
    """What the search for the operator at fault says of two dumps."""

    @property
    def verdict(self) -> str:
        """found, none or not_judged."""

    @property
    def reason(self) -> str | None:
        """Why not_judged."""

    @property
    def mode(self) -> str:
        """What was judged by: tensor, sketch or statistics."""

    @property
    def findings(self) -> list[Culprit]:
        """In order of execution; the first is the culprit."""

    @property
    def consequences(self) -> int:
        """Number of followers."""

    @property
    def followers(self) -> list[str]:
        """Entries of the target that deviate because of a finding before them."""

    @property
    def judged(self) -> int: ...

    @property
    def replayed(self) -> int:
        """Entries that were computed again in float64."""

    @property
    def not_replayed(self) -> dict[str, int]:
        """Entries that could not be, by reason."""

    @property
    def discoveries(self) -> int:
        """Replayed entries that are wrong at level q (Benjamini & Hochberg)."""

    @property
    def q(self) -> float: ...

    @property
    def calibrated(self) -> str:
        """Where the constants come from."""

    @property
    def loss_impact(self, /) -> dict[str, float] | None:
        """
        sum of all effects, recorded difference, unexplained rest; None: not asked for, or the loss is unknown.
        """

    @property
    def notes(self) -> list[str]: ...

    def __repr__(self) -> str: ...

class RankResult:
    """What became of one pair of ranks."""

    @property
    def step(self) -> str:
        """Name of the step folder; empty outside a dump root."""

    @property
    def rank(self) -> str:
        """Name of the target's rank folder; empty for two files."""

    @property
    def target(self) -> str: ...

    @property
    def golden(self) -> str: ...

    @property
    def mode(self) -> str:
        """tensor, statistics or md5."""

    @property
    def error(self) -> str | None:
        """Why this pair was not compared, or None."""

    @property
    def counts(self) -> dict[str, Any]: ...

    @property
    def first_bad(self, /) -> dict[str, Any] | None: ...

    @property
    def culprit(self) -> Culprit | None:
        """
        The operator at fault; None: nothing was found, or culprit_search says why.
        """

    @property
    def culprit_search(self) -> CulpritSearch | None:
        """
        All that the search for the operator at fault says; None: it was not made.
        """

    @property
    def reports(self) -> list[str]:
        """Paths of the csv or xlsx files."""

    @property
    def advice(self) -> str:
        """Path of the advisor file; empty without one."""

    @property
    def notes(self) -> list[str]: ...

    @property
    def columns(self) -> list[str]:
        """Column names of rows(). Needs keep_rows=True."""

    def rows(self) -> list[Any]:
        """All cells of the report, row by row. Needs keep_rows=True."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """
        The columns of the report by name: float64 for figures, with NaN where the report has a word,
        objects (text, bool) for the others. Relative errors of statistics are percents. Needs
        keep_rows=True and NumPy.
        """

class CompareResult:
    """What a comparison found and where it wrote."""

    @property
    def counts(self) -> dict[str, Any]:
        """Rows per verdict, over all ranks."""

    @property
    def first_bad(self, /) -> dict[str, Any] | None:
        """The culprit, else the first entry with a wrong output, or None."""

    @property
    def culprit(self) -> Culprit | None:
        """
        The operator at fault; None: nothing was found, or culprit_search says why.
        """

    @property
    def culprit_search(self) -> CulpritSearch | None:
        """
        All that the search for the operator at fault says; None: it was not made.
        """

    @property
    def ranks(self) -> list[RankResult]: ...

    @property
    def summary_path(self) -> str: ...

    @property
    def partial(self) -> bool:
        """Some rank failed or is missing."""

    @property
    def messages(self) -> list[str]: ...

    @property
    def seconds(self) -> float: ...

    def __str__(self) -> str: ...

class DifferenceResult:
    """Where two dumps differ first, over all ranks."""

    @property
    def first(self, /) -> list[dict[str, Any]]:
        """
        The entries found: step, rank, entry, reason. Empty when no compared output differs.
        """

    @property
    def reports(self) -> list[str]:
        """Paths of diff_analyze_*.json."""

    @property
    def summary_path(self) -> str: ...

    @property
    def partial(self) -> bool:
        """Some rank failed or is missing."""

    @property
    def messages(self) -> list[str]: ...

    def __str__(self) -> str: ...

def read_name_map(path: str) -> list[tuple[str, str]]:
    """
    Read a -dm or -cm file: pairs of names in file order. Raises ConfigError.
    """

def compare(options: CompareOptions) -> CompareResult:
    """
    Compare two dumps (files, or folders of ranks or steps) and write reports.

    The GIL is released; Ctrl-C stops it. Raises CompareError when nothing could be compared.
    """

def analyze_differences(options: CompareOptions) -> DifferenceResult:
    """
    Search the first entries that differ (-da), write JSON. Raises as compare().
    """

def read_tensor(folder: str, name: str, most: int = 0) -> tuple[str, list[int], bytearray]:
    """
    The tensor of a .pt or .npy file below a folder: dtype ("torch.float32"), shape, and its elements in row-major order. Nothing in the file is executed. Raises MsprobeError: no such file, a name that leads out of the folder, no tensor file, more than `most` bytes (0: any).
    """

def culprit_score(y: tuple[int, str], reference: int, native: tuple[int, str] | None, condition: int, shape: tuple[int, int], kappa: float) -> tuple[float, float, float, float]:
    """
    Largest and root mean square ratio of |y - reference| to the error that rounding explains, then the Euclidean norms of the error and the reference. Addresses; `shape` is (elements, length of the last axis).
    """

def culprit_kappa(api: str, n: float, sixteen: bool) -> float:
    """
    How many roundings of the accumulating type a call of this API adds up.
    """

def culprit_parameter_kappa(n: float) -> float:
    """The same for the gradient of a parameter."""

def culprit_is_product(api: str) -> bool:
    """Does the API multiply two operands and add up?"""

def culprit_is_low_precision(api: str) -> bool:
    """Does autocast run the API in its 16-bit type?"""

def run_item(request: dict[str, Any], payload: bytes, inputs: Sequence[bytes], scratch: str, emit: object) -> None:
    """
    Run one work item of a command and hand out its result in pieces.

    Raises MsprobeError when the command's arguments or the item are wrong here.
    """

def tensor_stats(array: Annotated[NDArray[Any], dict(device='cpu', writable=False)], dtype: str = '') -> dict[str, Any]:
    """
    Return Max, Min, Mean and Norm of an array in CPU memory, and its counts of NaN and infinity.

    Any strides. `dtype` (a torch name) reads the elements as another type of the same size, for
    types that the array library lacks: bfloat16 as uint16, float8 as uint8.
    """

def pair_errors(a: Annotated[NDArray[Any], dict(device='cpu', writable=False)], b: Annotated[NDArray[Any], dict(device='cpu', writable=False)], dtype_a: str = '', dtype_b: str = '') -> dict[str, Any]:
    """
    Return the six figures between a target `a` and a golden `b` of equally many elements, unrounded,
    and under "raw" the sums and counts behind them.
    """

def crc32(array: Annotated[NDArray[Any], dict(device='cpu', writable=False)]) -> int:
    """CRC-32 (zlib) of the elements' bytes in row-major order."""

def xor64(array: Annotated[NDArray[Any], dict(device='cpu', writable=False)]) -> int:
    """
    XOR of the little-endian 64-bit words of the elements' bytes in row-major order, zero-padded.
    """

def hash64(array: Annotated[NDArray[Any], dict(device='cpu', writable=False)]) -> int:
    """Position-aware hash of the elements; does not depend on strides."""

def sketch_record(array: Annotated[NDArray[Any], dict(device='cpu', writable=False)], k: int = 256, seed: int = 1, dtype: str = '') -> str:
    """
    Return what a dump records of an array for summary_mode "sketch", as the text of a leaf: dtype,
    shape, Norm, hash64 and sketch (docs/sketch.md). `dtype` as for tensor_stats.
    """

def sketch_distance(x: str, y: str) -> dict[str, Any]:
    """
    Return the estimated distance, relative distance and cosine of the tensors behind two records,
    with the half-widths of their 95 % intervals. ValueError: a record that lies, another k, seed or
    number of elements, or a part of a tensor.
    """

def round12(x: float) -> float:
    """Return x as printed with 12 decimals."""

def round_cosine(x: float) -> float:
    """Return x as a Cosine cell shows it: 12 decimals, 6 above 0.9999."""

def active_target() -> str:
    """Return the name of the vector instruction set in use."""

def precheck_read_dump(path: str) -> dict[str, Any]:
    """
    Entries of a dump.json in file order, of a torn one those that are complete, then those of its journal. Raises PrecheckError.
    """

def precheck_final(npu: str, gpu: str, dir: str, old_standard: bool, base_rules: bool, digits: int = -1, english: bool = False) -> dict[str, Any]:
    """
    Judge the details of one device by those of another and write the final files. Raises PrecheckError.
    """

class PrecheckRow:
    """One line of accuracy_checking_details_*.csv."""

    def __init__(self, name: str, status: str = 'SKIP', message: str = '') -> None: ...

    @property
    def name(self) -> str: ...

    @name.setter
    def name(self, arg: str, /) -> None: ...

    @property
    def message(self) -> str: ...

    @message.setter
    def message(self, arg: str, /) -> None: ...

    @property
    def status(self) -> str: ...

    @status.setter
    def status(self, arg: str, /) -> None: ...

    def set_kinds(self, bench: str, device: str, shape: str) -> None: ...

    def set_equal(self) -> None:
        """Equal values that are no tensors: an error rate of 0."""

    def cells(self, digits: int = -1) -> list[str]:
        """The twenty cells between name and status, as written."""

    def __getstate__(self) -> tuple[str, str, str, list[tuple[int, int, float, int, str]]]: ...

    def __setstate__(self, arg: tuple[str, str, str, Sequence[tuple[int, int, float, int, str]]], /) -> None: ...

class PrecheckJudge:
    """Judges the outputs of one call."""

    def __init__(self, api: str, float8_input: bool, old_standard: bool, q_rules: bool, scale: float = 0.0, terms: float = 1.0, amplifies: bool = False, gradient: bool = False, corrected: bool = False) -> None: ...

    def __call__(self, row: PrecheckRow, bench: tuple[int, str, Sequence[int]], device: tuple[int, str, Sequence[int]], baseline: tuple[int, str, Sequence[int]] | None, bench_dtype: str, device_dtype: str) -> None:
        """
        Fill status, cells and message of a row. Tensors are (address, dtype, shape) of contiguous CPU memory; the two texts are shown.
        """

    def dropout(self, row: PrecheckRow, bench: tuple[int, str, Sequence[int]], device: tuple[int, str, Sequence[int]], bench_dtype: str, device_dtype: str) -> None:
        """Judge by the shares of zeros."""

def precheck_stream_key(seed: int, api: str, path: str) -> int: ...

def precheck_fill_uniform(address: int, count: int, dtype: str, low: float, high: float, key: int) -> bool:
    """Uniform floats in [low, high] at an address; false for other dtypes."""

def precheck_fill_integers(address: int, count: int, dtype: str, low: int, span: int, key: int) -> bool:
    """Uniform integers or bool in low … low + span at an address."""

def precheck_checksum(address: int, bytes: int, seed: int) -> int:
    """XXH3 of bytes at an address."""

class PrecheckWriter:
    """accuracy_checking_details_*.csv and …_result_*.csv while they grow."""

    @staticmethod
    def create(dir: str, old_standard: bool, digits: int = -1, english: bool = False, baseline: bool = False) -> PrecheckWriter:
        """New files with headers. Raises PrecheckError."""

    @staticmethod
    def resume(result_csv: str, retry_skips: bool, old_standard: bool, digits: int = -1, baseline: bool = False) -> PrecheckWriter:
        """Go on with files of an earlier run. Raises PrecheckError."""

    def append(self, name: str, forward: str, backward: str, message: str, rows: Sequence[PrecheckRow], baseline_rows: Sequence[PrecheckRow] = []) -> None: ...

    @property
    def done(self) -> list[str]: ...

    @property
    def result_path(self) -> str: ...

    @property
    def details_path(self) -> str: ...

    @property
    def baseline_path(self) -> str: ...

    @property
    def stamp(self) -> str: ...
