"""From what a person types to a place of work."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gatelab.errors import InputError
from gatelab.work.executor import Executor
from gatelab.work.here import Here

if TYPE_CHECKING:
    from gatelab.work.dask_executor import DaskExecutor

FORMS = "local:4, or slurm:queue=short,cores=8,memory=16GB,walltime=01:00:00,jobs=4"
# For Dask's dashboards: on this machine only, and on any port, since the usual port may be in use.
_DASHBOARD = "127.0.0.1:0"
_SLURM = {"queue", "account", "cores", "memory", "walltime", "interface", "jobs"}


def tell_user(text: str) -> None:
    """A line on standard error."""
    print(f"gatelab: {text}", file=sys.stderr, flush=True)  # noqa: T201  the person who waits must know


@contextmanager
def connect(
    scheduler: str | None = None,
    cluster: str | None = None,
    *,
    timeout: float = 10.0,
    notify: Callable[[str], None] = tell_user,
) -> Iterator[Executor]:
    """A place of work: that of a scheduler, of a cluster that is started for it, or this process if neither is named.

    Args:
        scheduler: the address of a Dask scheduler, tcp://host:port.
        cluster: what to start; ``FORMS`` shows how it is written.
        timeout: seconds in which a scheduler must answer, and have a worker. Jobs in a queue are waited for.
        notify: told in a line what a person should know: that all workers are lost, say.

    Raises:
        InputError: nobody answers, a worker cannot be used, or Dask is not installed.
    """
    if scheduler is None and cluster is None:
        yield Here()
        return
    with connect_dask(scheduler, cluster, timeout=timeout, notify=notify) as executor:
        yield executor


@contextmanager
def connect_dask(
    scheduler: str | None,
    cluster: str | None,
    *,
    timeout: float = 10.0,
    notify: Callable[[str], None] = tell_user,
) -> "Iterator[DaskExecutor]":
    """As :func:`connect`, but never this process."""
    check(scheduler, cluster)
    kind, options = ("scheduler", {}) if cluster is None else read_cluster(cluster)
    _require("distributed")
    from gatelab.work.dask_executor import DaskExecutor  # noqa: PLC0415  an optional extra

    with ExitStack() as stack:
        stack.enter_context(_quiet())
        wait: float | None = timeout
        if kind == "local":
            scheduler = stack.enter_context(start_local(**options)).scheduler_address
        elif kind == "slurm":
            scheduler, wait = stack.enter_context(start_slurm(**options)).scheduler_address, None
            notify(f"SLURM has taken {options['jobs']} jobs; waiting for the first to begin")
        assert scheduler is not None
        executor = DaskExecutor(scheduler, timeout, notify)
        stack.callback(executor.close)
        executor.wait_for_workers(wait)
        yield executor


def check(scheduler: str | None, cluster: str | None) -> None:
    """Refuse what cannot be meant, before anything is started."""
    if scheduler is not None and cluster is not None:
        raise InputError("--scheduler names a cluster that runs, --cluster one to start; give one of them")
    if cluster is not None:
        read_cluster(cluster)


def read_cluster(text: str) -> tuple[str, dict[str, Any]]:
    """What is to be started, and with which options.

    Example:
        >>> read_cluster("local:4")
        ('local', {'workers': 4})
        >>> read_cluster("slurm:cores=8,memory=16GB,jobs=2")
        ('slurm', {'jobs': 2, 'cores': 8, 'memory': '16GB'})
    """
    kind, _, rest = text.partition(":")
    if kind == "local" and rest.isdecimal() and int(rest) > 0:
        return "local", {"workers": int(rest)}
    if kind != "slurm":
        raise InputError(f"--cluster {text}: write {FORMS}")
    options: dict[str, Any] = {"jobs": 1}
    for setting in rest.split(",") if rest else []:
        key, equals, value = setting.partition("=")
        if key not in _SLURM or not equals or not value:
            raise InputError(f"--cluster {text}: '{setting}' is none of {', '.join(sorted(_SLURM))}; write {FORMS}")
        if key in {"cores", "jobs"}:
            if not value.isdecimal() or int(value) == 0:
                raise InputError(f"--cluster {text}: {key} must be a number, not '{value}'; write {FORMS}")
            options[key] = int(value)
        else:
            options[key] = value
    missing = {"cores", "memory"} - set(options)
    if missing:
        raise InputError(f"--cluster {text}: {' and '.join(sorted(missing))} of a job must be given; write {FORMS}")
    return "slurm", options


def start_local(workers: int) -> Any:
    """Worker processes on this machine, one thread each; the system alone limits their memory."""
    from distributed import LocalCluster  # noqa: PLC0415

    options: dict[str, Any] = {"memory_limit": 0, "dashboard_address": _DASHBOARD, "silence_logs": logging.CRITICAL}
    options |= {"preload": "gatelab.work.dask_executor"}  # for its dask_setup
    return LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, **options)


def start_slurm(jobs: int, cores: int, memory: str, **options: Any) -> Any:
    """Jobs in SLURM's queue, each with a worker process for every core; options that are left out are Dask's own."""
    _require("dask_jobqueue")
    from dask_jobqueue.slurm import SLURMCluster  # noqa: PLC0415

    options |= {
        "processes": cores,  # an experiment's cells need processes of their own
        "job_script_prologue": [f"export {name}_NUM_THREADS=1" for name in ("OMP", "MKL", "OPENBLAS")],
        "scheduler_options": {"dashboard_address": _DASHBOARD},
        "silence_logs": logging.CRITICAL,
    }
    cluster = SLURMCluster(cores=cores, memory=memory, **options)
    try:
        _submit(cluster, jobs)
    except BaseException:
        cluster.close()
        raise
    return cluster


def _submit(cluster: Any, jobs: int) -> None:
    from distributed import Status  # noqa: PLC0415

    cluster.scale(jobs=jobs)
    cluster.sync(cluster._correct_state)  # until each has been submitted
    for job in cluster.workers.values():
        if job.job_id is None:
            try:
                cluster.sync(job.start)  # only to hear what is wrong: Dask keeps it to its log
            except (RuntimeError, OSError) as error:
                for other in cluster.workers.values():
                    if other.job_id is None:
                        other.status = Status.failed  # else the cluster cannot be closed
                said = " ".join(str(error).partition("stderr:")[2].split()) or str(error)
                raise InputError(f"SLURM did not take a job: {said}; its script was\n{cluster.job_script()}") from error


def _require(module: str) -> None:
    try:
        import_module(module)
    except ImportError as error:
        raise InputError(f"--scheduler and --cluster need {module}; pip install 'gatelab[cluster]'") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask's log says the same in many lines; what a person should know goes through ``notify``."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in {"distributed", "tornado"}]
    loggers = [logging.getLogger(name) for name in [*names, "asyncio"]]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
