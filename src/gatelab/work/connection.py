"""Opens executors from command-line options."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gatelab.errors import InputError
from gatelab.work.here import Here
from gatelab.work.signals import kept_from_children

if TYPE_CHECKING:
    from gatelab.work.dask_executor import DaskExecutor

FORMS = "local:4, or slurm:queue=short,cores=8,memory=16GB,walltime=01:00:00,jobs=4"
# For Dask's dashboards: on this machine only, and on any port, since the usual port may be in use.
_DASHBOARD = "127.0.0.1:0"
_SLURM = {"queue", "account", "cores", "memory", "walltime", "interface", "jobs"}


def _tell_user(text: str) -> None:
    """Print a line on standard error."""
    print(f"gatelab: {text}", file=sys.stderr, flush=True)  # noqa: T201  the user is waiting


@contextmanager
def connect(
    scheduler: str | None = None,
    cluster: str | None = None,
    *,
    timeout: float = 10.0,
    notify: Callable[[str], None] = _tell_user,
) -> "Iterator[Here | DaskExecutor]":
    """Open an executor: the workers of a running scheduler, a cluster started here, or (by default) this process.

    Args:
        scheduler: the address of a Dask scheduler, tcp://host:port.
        cluster: what to start, such as "local:4"; ``FORMS`` shows the forms.
        timeout: seconds within which a scheduler must answer and have a worker. Waiting for queued jobs has no limit.
        notify: receives lines for the user, for example that all workers are lost.

    Returns:
        A context manager that yields an :class:`Executor` and stops what it started.

    Raises:
        InputError: the scheduler does not answer, a worker cannot be used, or Dask is not installed.

    Example:
        >>> with connect() as executor:
        ...     sorted(executor.run(pow, 2, [3, 1]))
        [(1, 2), (3, 8)]
    """
    check(scheduler, cluster)
    if scheduler is None and cluster is None:
        yield Here()
        return
    kind, options = ("scheduler", {}) if cluster is None else read_cluster(cluster)
    _require("distributed")
    from gatelab.work.dask_executor import DaskExecutor  # noqa: PLC0415  an optional extra

    with ExitStack() as stack:
        stack.enter_context(_quiet())
        wait: float | None = timeout
        if kind == "local":
            folder = stack.enter_context(TemporaryDirectory(prefix="gatelab-", ignore_cleanup_errors=True))
            with kept_from_children():
                scheduler = stack.enter_context(_start_local(folder, **options)).scheduler_address
        elif kind == "slurm":
            scheduler, wait = stack.enter_context(start_slurm(**options)).scheduler_address, None
            notify(f"SLURM has accepted {options['jobs']} jobs; waiting for the first to begin")
        assert scheduler is not None
        executor = DaskExecutor(scheduler, timeout, notify)
        stack.callback(executor.close)
        executor.wait_for_workers(wait)
        yield executor


def check(scheduler: str | None, cluster: str | None) -> None:
    """Refuse options that contradict each other or cannot be read, before anything is started."""
    if scheduler is not None and cluster is not None:
        raise InputError("--scheduler names a running cluster, --cluster one to start; give one of them")
    if cluster is not None:
        read_cluster(cluster)


def read_cluster(text: str) -> tuple[str, dict[str, Any]]:
    """Return what to start, and its options.

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
                raise InputError(f"--cluster {text}: {key} must be a whole number from 1, not '{value}'; write {FORMS}")
            options[key] = int(value)
        else:
            options[key] = value
    missing = {"cores", "memory"} - set(options)
    if missing:
        raise InputError(f"--cluster {text}: {' and '.join(sorted(missing))} must be given for each job; write {FORMS}")
    return "slurm", options


def _start_local(folder: str, workers: int) -> Any:
    """Start worker processes on this machine, with one thread each. Only the system limits their memory.

    They and the scheduler keep their files in ``folder``, which is private. Dask's default is a folder with a
    predictable name, and Python would look for modules in it.
    """
    from dask import config  # noqa: PLC0415
    from distributed import LocalCluster  # noqa: PLC0415

    options: dict[str, Any] = {"memory_limit": 0, "dashboard_address": _DASHBOARD, "silence_logs": logging.CRITICAL}
    options |= {"host": "127.0.0.1", "local_directory": folder}
    with config.set({"temporary-directory": folder}):  # a scheduler has no option for it
        return LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, **options)


def start_slurm(jobs: int, cores: int, memory: str, **options: Any) -> Any:
    """Submit jobs to SLURM, each with one worker process per core. Missing options come from Dask's configuration."""
    _require("dask_jobqueue")
    from dask_jobqueue.slurm import SLURMCluster  # noqa: PLC0415

    options |= {
        "processes": cores,  # a run's cells need processes of their own
        "worker_extra_args": ["--dashboard-address", _DASHBOARD],
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
    cluster.sync(cluster._correct_state)  # returns when each job has been submitted
    for job in cluster.workers.values():
        if job.job_id is None:
            try:
                cluster.sync(job.start)  # fails again, and raises the error that Dask only logged
            except (RuntimeError, OSError) as error:
                for other in cluster.workers.values():
                    if other.job_id is None:
                        other.status = Status.failed  # otherwise the cluster cannot be closed
                reason = " ".join(str(error).partition("stderr:")[2].split()) or str(error)
                raise InputError(
                    f"SLURM did not accept a job: {reason}; check the options in its script:\n{cluster.job_script()}"
                ) from error


def _require(module: str) -> None:
    try:
        import_module(module)
    except ImportError as error:
        raise InputError(f"--scheduler and --cluster need {module}; pip install 'gatelab[cluster]'") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's log: messages for the user go through ``notify``."""
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
