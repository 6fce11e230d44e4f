"""``einturnip run``: runs a program and writes its outputs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from einturnip.cli import options, recording
from einturnip.cli.process import on_signals, outlive_reader
from einturnip.core.errors import BindError
from einturnip.core.events import log
from einturnip.lang.source_text import program_name
from einturnip.report.progress import Show, shown
from einturnip.report.summary import output_lines

if TYPE_CHECKING:
    from einturnip.api.jobs import Job, Missing
    from einturnip.api.staged_job import StagedJob
    from einturnip.cluster.transport import Cluster
    from einturnip.eingraph.types import InputNode
    from einturnip.runtime.scheduler.report import RunReport
    from einturnip.storage.types import Source


@click.command("run")
@options.programs
@options.inputs
@options.outputs
@options.budget
@options.cluster
@options.trace
@options.schedule
@click.option(
    "--random",
    "seed",
    type=options.Number(int, 0),
    is_flag=False,
    flag_value=0,
    metavar="[SEED]",
    help="Fill inputs that have no file with random numbers.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Write a report of the run to FILE.json.",
)
@options.json_log
@options.steps
@click.option("--analyze", is_flag=True, help="Print predicted and actual time for every statement.")
@options.quiet
@options.debug
def command(
    programs: tuple[Path, ...],
    inputs: dict[str, str],
    dims: dict[str, int],
    outputs: dict[str, str],
    seed: int | None,
    report_file: Path | None,
    json_log: bool,
    analyze: bool,
    trace: Path | None,
    record: Path | None,
    replay: Path | None,
    steps: int | None,
    feeds: dict[str, str],
    checkpoint: Path | None,
    every: int,
    quiet: bool,
    at: str | None,
    insecure: bool,
    retries: int,
    **budget: Any,
) -> None:
    """Run PROG.ein and write its outputs.

    An output with a file, given here or in the program, is written to it. For the others, shape, dtype, range and a
    checksum are printed. Several programs share one memory and the same workers; a.X is X of a.ein.
    """
    from einturnip.cli.planning import MemoryLimit, ProgramArguments, planned, require_kept
    from einturnip.report.summary import summarise, warning_lines

    outlive_reader()
    stated = {"--report": report_file, "--trace": trace, "--record": record}
    report_files = {option: file for option, file in stated.items() if file is not None}
    budget["retries"] = _checked_retries(at, retries)
    if at is not None:
        lacking = {"--record": record, "--replay": replay, "--workers": budget["workers"]}
        if _serves_another(at, len(programs), budget["device"], lacking):
            return
    if report_files:
        recording.require_places(report_files)
    if len(programs) > 1:
        from einturnip.cli.multi_program import ProgramOutcome, run_together

        alone = (("--record", record), ("--replay", replay), ("--analyze", analyze), ("--steps", steps))
        for name, given in (*alone, ("--json-log", json_log)):
            if given:
                raise click.UsageError(f"{name} needs a single program")
        return run_together(
            programs, inputs, dims, outputs, budget, _source_of_missing(seed), ProgramOutcome(trace, report_file, quiet)
        )
    (program,) = programs
    if steps is not None or feeds or checkpoint is not None:
        from einturnip.cli.steps import StepOptions, run_steps

        files = (("--trace", trace), ("--report", report_file), ("--record", record), ("--replay", replay))
        for name, given in (*files, ("--analyze", analyze), ("--json-log", json_log)):
            if given:
                raise click.UsageError(f"{name} cannot be combined with --steps")
        step_options = StepOptions(1 if steps is None else steps, feeds, checkpoint, every)
        arguments = ProgramArguments(program, inputs, dims, outputs, budget)
        return run_steps(arguments, _source_of_missing(seed), step_options, quiet, cluster_of(at, insecure))
    limit = MemoryLimit()
    budget = budget if replay is None else recording.replayed(budget, replay)
    arguments = ProgramArguments(program, inputs, dims, outputs, budget)
    with on_signals() as stop, _shown(quiet, json_log) as show, cluster_of(at, insecure) as cluster:
        began = time.monotonic()
        unrolls = record is not None or replay is not None
        job = planned(arguments, _source_of_missing(seed), lenient=False, cluster=cluster, stages=not unrolls)
        if trace is not None:
            job.keep_runs()
        planning = time.monotonic() - began
        stop.running = True
        try:
            if report_files:
                recording.require_free(report_files, [program], job)
            report, sinks = job.run(show, stop.event)
        finally:
            job.close()
        stop.running = False
    report = report if at is not None else limit.checked(report)
    _write_reports(job, report, program_name(program), report_files, planning)
    with _shown(quiet, json_log):
        for line in [*warning_lines(report), *(_idle_devices(job) if at is None else ())]:
            log("warning", line, level="WARNING") if json_log else click.echo(line, err=True)
    if not quiet:
        for line in [*output_lines(sinks, job.targets), *summarise(report, planning)]:
            click.echo(line)
    if analyze:
        from einturnip.cli.output_lines import columns, show_lines
        from einturnip.report.analyze import analysed

        click.echo(f"on {job.device}")
        show_lines([(), *analysed(job.analysis(report), columns())])
    require_kept(report.memory_nbytes, report.memory_exceeded_nbytes)


def _shown(quiet: bool, json_log: bool) -> AbstractContextManager[Show | None]:
    """Context that logs or shows the run, with the function that receives its progress."""
    if not json_log:
        return shown(quiet)
    from einturnip.cli.json_log import json_lines

    return json_lines(sys.stderr)


def _idle_devices(job: Job | StagedJob) -> Iterator[str]:
    """Yield a warning if a device of the run had nothing to compute."""
    from einturnip.api.jobs import Job

    if isinstance(job, Job) and job.planned.memgraph.devices > 1:
        from einturnip.report.sites import idle_text

        if text := idle_text(job.planned.memgraph):
            yield f"warning: {text}"


def _write_reports(
    job: Job | StagedJob, report: RunReport, program: str, files: Mapping[str, Path], planning: float
) -> None:
    """Write the files of the options that the user gave."""
    if "--record" in files:
        from einturnip.api.jobs import Job

        assert isinstance(job, Job)
        recording.record(files["--record"], job, report, program)
    if "--trace" in files:
        from einturnip.report.trace import write

        write(files["--trace"], job.traced_runs(report), report.wall_seconds, program)
    if "--report" in files:
        head = {"program": program, "planning_seconds": planning}
        content = head | job.analysis(report).to_json()
        files["--report"].write_text(json.dumps(content, indent=2) + "\n")


def _checked_retries(at: str | None, retries: int) -> int:
    """Refuse retries of a run without workers that can be lost alone; with MPI all ranks end."""
    if retries and at == "mpi":
        raise click.UsageError(
            "--retries cannot be combined with --at mpi: if a rank is lost, its launcher ends the whole job. help: "
            "start the job again, or use --at local:4 or a Dask scheduler"
        )
    if retries and at is None:
        raise click.UsageError("--retries is for the workers of a cluster, which can be lost: give --at too")
    return retries


def _serves_another(at: str, programs: int, device: str, lacking: Mapping[str, object]) -> bool:
    """Refuse options that runs on a cluster lack; serve rank 0 of an MPI job, if this is another rank.

    ``lacking``: the values of those options.
    """
    for name, value in lacking.items():
        if value:
            raise click.UsageError(f"{name} cannot be combined with --at")
    if programs > 1:
        raise click.UsageError("--at runs one program")
    if device not in ("auto", "cpu"):
        raise click.UsageError("--at runs on the CPUs of workers; leave out --device")
    if at != "mpi":
        return False
    from einturnip.cluster.at import serve_rank

    return serve_rank()


def cluster_of(at: str | None, insecure: bool) -> AbstractContextManager[Cluster | None]:
    """Context with the cluster that ``--at`` names; None without it."""
    if at is None:
        return nullcontext()
    from einturnip.cluster.at import named_cluster

    return named_cluster(at, insecure)


def _source_of_missing(seed: int | None) -> Missing:
    """The source of an input without a file: random numbers with a seed, otherwise an error."""

    from einturnip.storage.generated import RandomSource

    def missing(node: InputNode) -> Source:
        if seed is None:
            raise BindError(
                f"input {node.name} (line {node.line}) has no file. help: give one, -i {node.name}=FILE, "
                "or fill such inputs with random numbers: --random"
            )
        return RandomSource(node.name, node.shape, node.dtype, seed)

    return missing
