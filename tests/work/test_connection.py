"""Executors from what a person types."""

import os
import subprocess
import sys

import pytest

from gatelab.errors import InputError
from gatelab.work import Here, connect
from gatelab.work.connection import read_cluster, start_slurm
from gatelab.work.executor import Executor
from tests.work.processes import ROOT
from tests.work.tasks import Counting, who


def test_neither_is_this_process():
    with connect() as executor:
        assert isinstance(executor, Here)
        assert isinstance(executor, Executor)
        assert executor.per_process == executor.parallel


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local", "write local:4, or slurm:queue=short"),
        ("local:0", "write local:4"),
        ("local:many", "write local:4"),
        ("pbs:cores=3", "write local:4"),
        ("slurm:", "cores and memory must be given for each job; write local:4"),
        ("slurm:cores=8", "memory must be given for each job"),
        ("slurm:cores=eight,memory=1GB", "cores must be a whole number from 1, not 'eight'"),
        ("slurm:cores=8,memory=1GB,jobs=0", "jobs must be a whole number from 1, not '0'"),
        ("slurm:cores=8,memory=1GB,colour=red", "'colour=red' is none of account, cores, interface, jobs, memory"),
    ],
)
def test_unknown_forms_show_the_right_ones(text, message):
    with pytest.raises(InputError, match=f"--cluster {text}: .*{message}"), connect(None, text):
        pass


def test_forms():
    assert read_cluster("local:12") == ("local", {"workers": 12})
    text = "slurm:queue=short,cores=8,memory=16GB,walltime=01:00:00,jobs=4"
    options = {"queue": "short", "cores": 8, "memory": "16GB", "walltime": "01:00:00", "jobs": 4}
    assert read_cluster(text) == ("slurm", options)
    with pytest.raises(InputError, match="give one of them"), connect("tcp://127.0.0.1:1", "local:1"):
        pass
    with pytest.raises(InputError, match=r"'udp://x' is not a scheduler's address .*write tcp:"):
        connect("udp://x").__enter__()


@pytest.mark.slow
def test_without_dask_there_is_a_remedy():
    code = (
        "import sys\n"
        "for name in ('distributed', 'dask_jobqueue', 'cloudpickle'): sys.modules[name] = None\n"
        "import gatelab.errors, gatelab.work, gatelab.lab.runs, gatelab.cli\n"
        "assert 'dask' not in sys.modules\n"
        "try:\n"
        "    with gatelab.work.connect('tcp://127.0.0.1:8786'): pass\n"
        "except gatelab.errors.InputError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "--scheduler and --cluster need distributed; pip install 'gatelab[cluster]'\n"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """SLURM's commands as we need them: jobs begin at once on this machine, and can be ended."""
    commands = {
        # Like SLURM, it keeps a copy: Dask removes its script as soon as the job is submitted.
        "sbatch": 'cp "$1" job-$$; setsid bash job-$$ > job.log 2>&1 & echo $! >> jobs; echo "Submitted batch job $!"',
        "scancel": 'echo "$1" >> ended; kill -KILL -- -"$1"',
    }
    for name, script in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    yield tmp_path
    for job in (tmp_path / "jobs").read_text().split() if (tmp_path / "jobs").exists() else []:
        subprocess.run(["kill", "-KILL", "--", f"-{job}"], check=False, stderr=subprocess.DEVNULL)


def test_a_slurm_job_says_what_was_asked(slurm):
    (slurm / "sbatch").write_text("#!/bin/sh\necho Submitted batch job 12\n")
    (slurm / "scancel").write_text(f"#!/bin/sh\necho $1 >> {slurm}/ended\n")
    with start_slurm(jobs=2, cores=8, memory="16GB", queue="short", walltime="01:00:00", account="us") as cluster:
        lines = cluster.job_script().splitlines()
    assert {"#SBATCH -p short", "#SBATCH -t 01:00:00", "#SBATCH -A us", "#SBATCH --cpus-per-task=8"} <= set(lines)
    assert "export OMP_NUM_THREADS=1" in lines
    assert "--nthreads 1" in lines[-1]
    assert "--dashboard-address 127.0.0.1:0" in lines[-1]
    assert "--nworkers 8" in lines[-1]
    assert (slurm / "ended").read_text() == "12\n12\n"


def test_slurm_refuses_a_job(slurm, capfd):
    (slurm / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition: nowhere' >&2\nexit 1\n")
    with (
        pytest.raises(
            InputError,
            match=r"SLURM did not accept a job: .*invalid partition: nowhere; check the options in its script:\n#!",
        ),
        connect(None, "slurm:queue=nowhere,cores=1,memory=1GB"),
    ):
        pass
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_jobs_of_slurm_work(slurm):
    notes = []
    text = "slurm:cores=2,memory=4GB,walltime=00:10:00,interface=lo,jobs=1"
    with connect(None, text, notify=notes.append) as executor:
        seen = [answer for _, answer in executor.run(who, Counting(), range(20))]
    assert len({pid for pid, _, _ in seen}) == 2
    assert {threads for _, threads, _ in seen} == {1}
    assert notes == ["SLURM has accepted 1 jobs; waiting for the first to begin"]
    assert (slurm / "ended").read_text() == (slurm / "jobs").read_text()
