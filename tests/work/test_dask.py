"""Work on a Dask cluster, with real processes that really die."""

import os
import re
import signal
import socket
import threading
import time

import pytest
import torch

from gatelab.errors import InputError, RunError
from gatelab.work import Here, connect
from gatelab.work.connection import read_cluster
from tests.work.processes import ROOT, Processes, free_port
from tests.work.tasks import Counting, die, fail, nap, patient, product, report, unsendable, who

pytest.importorskip("distributed")
dask_executor = pytest.importorskip("gatelab.work.dask_executor")


def wait_until(condition, seconds=100.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


class Meanwhile:
    """Does something beside the test; what goes wrong there fails the test."""

    def __init__(self, function):
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(function,))

    def _run(self, function):
        try:
            function()
        except BaseException as error:
            self._error = error

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._thread.join()
        if self._error:
            raise self._error


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("processes")) as started:
        yield started


@pytest.fixture(scope="module")
def scheduler(processes):
    """With two workers, one of which has two threads."""
    _, address = processes.scheduler()
    processes.worker(address, "one")
    processes.worker(address, "two", threads=2)
    return address


def test_answers_are_those_of_one_process_bit_for_bit(scheduler, capfd):
    common = Counting(600)  # large enough to travel beside the pickle
    blocks = [slice(start, start + 140) for start in range(0, 600, 140)]
    tasks = [(rows, columns) for rows in blocks for columns in blocks]  # slices cannot be keys of a dictionary
    notes = []
    with connect(scheduler, timeout=60, notify=notes.append) as executor:
        wait_until(lambda: executor.parallel == 3)
        assert executor.per_process == 2
        found = list(executor.run(product, common, iter(tasks)))
        assert len(found) == len(tasks)
        for task, answer in Here(1).run(product, common, tasks):
            (same,) = [block for other, block in found if other == task]
            assert torch.equal(same, answer)
            same += 1  # it is the caller's own
        assert list(executor.run(product, common, [])) == []
        seen = [answer for _, answer in executor.run(who, Counting(), range(40))]
    # Each worker process has one object, and uses it for all of its tasks.
    pids = {pid for pid, _, _ in seen}
    assert len(pids) == 2
    for pid in pids:
        uses = [count for process, _, count in seen if process == pid]
        assert len(set(uses)) == len(uses)  # of two objects some would be the same
    assert {threads for _, threads, _ in seen} == {1}
    assert notes == []
    assert capfd.readouterr() == ("", "")


def test_errors_of_the_function_arrive_at_once_and_once(scheduler, tmp_path):
    with connect(scheduler, timeout=60) as executor:
        with pytest.raises(FileNotFoundError, match="no file for task 7"):
            list(executor.run(fail, str(tmp_path), [7]))
        assert len(list(tmp_path.glob("tried-*"))) == 1
        with pytest.raises(TypeError, match="serialize"):
            list(executor.run(unsendable, None, [1]))
        assert list(executor.run(product, Counting(4), [(slice(0, 1), slice(0, 1))]))


def test_nothing_stays_on_the_scheduler(scheduler):
    """Neither what a run sent to the workers, nor what a client left there that was killed."""

    def left(dask_scheduler):
        return [name for name in dask_scheduler.worker_plugins if name.startswith("gatelab/")]

    with connect(scheduler, timeout=60) as executor:
        client = executor._client
        client.register_plugin(dask_executor.WorkerPlugin(), "gatelab/Client-gone/1")
        with executor.crew(pow, 2) as (crew, _):
            (own,) = client.run_on_scheduler(left)
            assert client.id in own
            assert list(crew.run([3])) == [(3, 8)]
        assert client.run_on_scheduler(left) == []


def test_what_tasks_say_is_heard(scheduler):
    heard = []
    with (
        connect(scheduler, timeout=60) as executor,
        executor.crew(report, None, hear=lambda *message: heard.append(message)) as (crew, say),
    ):
        list(crew.run([(7, say)]))
        wait_until(lambda: heard, seconds=20)
    assert heard == [(7, "half")]


def test_only_what_workers_can_use_is_outstanding(scheduler, tmp_path):
    taken = []

    def tasks():
        for task in range(30):
            taken.append(task)
            yield task

    with connect(scheduler, timeout=60) as executor:
        wait_until(lambda: executor.parallel == 3)
        answers = executor.run(patient, str(tmp_path), tasks())
        (tmp_path / "go").touch()
        most = 0
        for answered, _ in enumerate(answers):
            most = max(most, len(taken) - answered)
        assert sorted(taken) == list(range(30))
        assert 3 <= most <= 6


def test_a_worker_that_is_killed_and_one_that_joins(processes, scheduler, tmp_path):
    """The killed one has tasks under way; the new one gets some of what is left."""
    victim = processes.worker(scheduler, "victim")
    notes, late = [], []

    def kill():
        wait_until(lambda: list(tmp_path.glob(f"began-*-{victim.pid}")))
        processes.kill(victim)
        late.append(processes.worker(scheduler, "late"))
        (tmp_path / "go").touch()

    def tasks():
        yield from range(20)
        wait_until(lambda: "late" in _names(executor))
        yield from range(20, 60)

    with connect(scheduler, timeout=60, notify=notes.append) as executor:
        wait_until(lambda: executor.parallel == 4)
        with Meanwhile(kill):
            answers = list(executor.run(patient, str(tmp_path), tasks()))
        assert sorted((task, value) for task, (value, _) in answers) == [(task, 10 * task) for task in range(60)]
        pids = {pid for _, (_, pid) in answers}
        assert victim.pid not in pids
        assert late[0].pid in pids
    assert notes == []


def test_a_worker_dies_when_its_crew_ends(processes, scheduler):
    worker = processes.worker(scheduler, "dying")
    with connect(scheduler, timeout=60) as executor:
        wait_until(lambda: "dying" in _names(executor))
        with executor.crew(nap, None):
            worker.send_signal(signal.SIGSTOP)  # it accepts the question, and dies before it answers
            killing = threading.Timer(1.0, processes.kill, [worker])
            killing.start()
        killing.join()
        assert list(executor.run(nap, None, [1])) == [(1, 1)]


@pytest.mark.slow
def test_all_workers_die_and_a_new_one_comes(tmp_path, capfd):
    """Only the dead one had what all tasks need."""
    notes = []
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        first = processes.worker(address, "first")

        def kill():
            wait_until(lambda: list(tmp_path.glob(f"began-*-{first.pid}")))
            processes.kill(first)
            wait_until(lambda: notes)
            processes.worker(address, "second")
            (tmp_path / "go").touch()

        with connect(address, timeout=60, notify=notes.append) as executor, Meanwhile(kill):
            answers = list(executor.run(patient, str(tmp_path), range(5)))
    assert sorted((task, value) for task, (value, _) in answers) == [(task, 10 * task) for task in range(5)]
    assert notes == [f"the scheduler at {address} has lost all its workers; waiting for new ones"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_scheduler_that_dies_or_hangs_during_the_work(signal_number, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(dask_executor, "_SILENCE", 10.0)
    with Processes(tmp_path) as processes:
        scheduler, address = processes.scheduler()
        worker = processes.worker(address, "one")

        def strike():
            wait_until(lambda: list(tmp_path.glob(f"began-*-{worker.pid}")))
            os.kill(scheduler.pid, signal_number)

        with connect(address, timeout=60) as executor, Meanwhile(strike):
            message = f"^the scheduler at {address} was lost; finished work is kept. .*run the same command again"
            with pytest.raises(RunError, match=message):
                list(executor.run(patient, str(tmp_path), range(5)))
            began = time.monotonic()
        assert time.monotonic() - began < 30
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_newcomer_without_gatelab_ends_and_its_tasks_are_done_elsewhere(tmp_path):
    """Dask ends a worker that cannot unpickle a task."""
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        processes.worker(address, "good")
        bad = []

        def tasks():
            yield from range(5)
            other = _gatelab(tmp_path, "raise ImportError('not for you')")
            bad.append(processes.worker(address, "bad", path=[other]))
            wait_until(lambda: "bad" in _names(executor))
            yield from range(5, 30)

        with connect(address, timeout=60) as executor:
            assert sorted(executor.run(nap, None, tasks())) == [(task, task) for task in range(30)]
        bad[0].wait(timeout=60)
    assert "ImportError: not for you" in (tmp_path / "processes.log").read_text()


@pytest.mark.slow
def test_a_scheduler_that_falls_silent_after_the_greeting(tmp_path, monkeypatch):
    clients = []
    with Processes(tmp_path) as processes:
        scheduler, address = processes.scheduler()
        real_client = dask_executor._client

        def stop_then(address, timeout):
            clients.append(real_client(address, 60))
            os.kill(scheduler.pid, signal.SIGSTOP)
            return clients[0]

        monkeypatch.setattr(dask_executor, "_client", stop_then)
        with pytest.raises(InputError, match=f"{address} accepted the connection, but then did not answer within 2 s"):
            connect(address, timeout=2).__enter__()
    assert clients[0].status == "closed"


@pytest.mark.slow
def test_a_worker_that_hangs_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_executor, "_SILENCE", 3.0)
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        worker = processes.worker(address, "silent")
        with connect(address, timeout=60) as executor:
            os.kill(worker.pid, signal.SIGSTOP)
            with pytest.raises(InputError, match=r"^worker silent \(tcp://.*\) has not answered for 3 s; stop it"):
                executor.require(os.getpid)


@pytest.mark.slow
def test_a_task_of_which_workers_die_is_given_up(tmp_path):
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        stop = threading.Event()

        def replace():
            while not stop.is_set():
                processes.worker(address, f"worker {time.monotonic()}").wait(timeout=100)

        with Meanwhile(replace), connect(address, timeout=60, notify=lambda _: None) as executor:
            with pytest.raises(RunError, match="workers died repeatedly while working on 3"):
                list(executor.run(die, str(tmp_path), [3]))
            stop.set()
            processes.__exit__()


def test_nobody_answers():
    address = f"tcp://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(InputError, match=f"no Dask scheduler answers at {address} within 0.5 s; start one"):
        connect(address, timeout=0.5).__enter__()
    assert time.monotonic() - began < 20


def test_somebody_accepts_the_connection_and_says_nothing():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(InputError, match=f"no Dask scheduler answers at {address} within 0.5 s"):
            connect(address, timeout=0.5).__enter__()
        assert time.monotonic() - began < 20


def test_no_workers_then_one_without_gatelab(tmp_path):
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        with pytest.raises(InputError, match=f"{address} has no workers, and none came within 2 s; start some"):
            wait_until(lambda: _connected(address, 2))
        processes.worker(address, "bad", path=[_gatelab(tmp_path, "raise ImportError('not for you')")])
        with pytest.raises(InputError, match=r"worker bad \(tcp://.*\) cannot import gatelab \(.*not for you.*install"):
            connect(address, timeout=60).__enter__()


@pytest.mark.slow
def test_a_worker_with_another_version(tmp_path):
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        processes.worker(address, "old", path=[_gatelab(tmp_path, "__version__ = '0.0.1'")])
        with pytest.raises(InputError, match=r"worker old \(tcp://.*\) has gatelab 0.0.1, but this client has"):
            connect(address, timeout=60).__enter__()


def _gatelab(folder, code):
    """Where a worker finds another gatelab."""
    (folder / "other" / "gatelab").mkdir(parents=True)
    (folder / "other" / "gatelab" / "__init__.py").write_text(code)
    return folder / "other"


def _names(executor):
    return {about["id"] for about in executor._client.scheduler_info(n_workers=-1)["workers"].values()}


def _connected(address, timeout):
    """False while the scheduler does not answer yet."""
    try:
        with connect(address, timeout=timeout):
            return True
    except InputError as error:
        if "no Dask scheduler answers" in str(error):
            return False
        raise


def test_the_page_tells_the_truth(scheduler):
    page = (ROOT / "docs" / "cluster.md").read_text()
    forms = re.findall(r"--cluster (\w+:\S+)", page)
    assert [read_cluster(form)[0] for form in forms] == ["local", "slurm"]
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(block.replace("connect()", f"connect(scheduler={scheduler!r})"), names := {})
    assert names["answers"] == {8: 4, 9: 3, 10: 2}
