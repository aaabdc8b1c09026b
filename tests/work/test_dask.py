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
from tests.work.tasks import Counting, counted, die, fail, first_is_long, patient, product, unsendable, who

pytest.importorskip("distributed")
dask_link = pytest.importorskip("gatelab.work.dask_link")


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
    told = []
    with connect(scheduler, timeout=60, notify=told.append) as executor:
        wait_until(lambda: executor.parallel == 3 or executor._link.look())
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
    assert told == []
    assert capfd.readouterr() == ("", "")


def test_errors_of_the_function_arrive_at_once_and_once(scheduler, tmp_path):
    with connect(scheduler, timeout=60) as executor:
        with pytest.raises(FileNotFoundError, match="no file for task 7"):
            list(executor.run(fail, str(tmp_path), [7]))
        assert len(list(tmp_path.glob("tried-*"))) == 1
        with pytest.raises(TypeError, match="serialize"):
            list(executor.run(unsendable, None, [1]))
        assert list(executor.run(product, Counting(4), [(slice(0, 1), slice(0, 1))]))


def test_only_what_workers_can_use_is_outstanding(scheduler, tmp_path):
    taken = []

    def tasks():
        for task in range(30):
            taken.append(task)
            yield task

    with connect(scheduler, timeout=60) as executor:
        wait_until(lambda: executor.parallel == 3 or executor._link.look())
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
    told = []

    def kill():
        wait_until(lambda: list(tmp_path.glob(f"began-*-{victim.pid}")))
        processes.kill(victim)
        late = processes.worker(scheduler, "late")
        wait_until(lambda: list(tmp_path.glob(f"began-*-{late.pid}")))  # something that waited behind another
        (tmp_path / "go").touch()

    with connect(scheduler, timeout=60, notify=told.append) as executor:
        wait_until(lambda: executor.parallel == 4 or executor._link.look())
        with Meanwhile(kill):
            answers = list(executor.run(patient, str(tmp_path), range(60)))
        assert sorted(task for task, _ in answers) == list(range(60))
        assert all(value == 10 * task for task, (value, _) in answers)
        pids = {pid for _, (_, pid) in answers}
        assert victim.pid not in pids
        assert len(pids) == 3
    assert told == []


def test_what_all_tasks_need_is_lost_while_another_waits_for_it(tmp_path):
    """The first worker hangs before it has them, and a newcomer's task waits for it to send them on."""
    (tmp_path / "go").touch()
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        first = processes.worker(address, "first")
        with connect(address, timeout=60) as executor:
            os.kill(first.pid, signal.SIGSTOP)
            crew = executor.crew(patient, str(tmp_path))
            for task in range(2):
                crew.submit(task)
            second = processes.worker(address, "second")

            def kill():
                wait_until(lambda: len({order.worker for order in list(crew._orders.values())}) == 2)
                processes.kill(first)

            with Meanwhile(kill):
                answers = sorted(crew.next() for _ in range(2))
            crew.close()
    assert answers == [(task, (10 * task, second.pid)) for task in range(2)]


def test_a_task_that_runs_is_not_begun_again_when_another_worker_dies(tmp_path):
    """The one that dies was the first to have what all tasks need, but the other has it as well by then."""
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        first = processes.worker(address, "first")
        with connect(address, timeout=60) as executor:
            crew = executor.crew(counted, str(tmp_path))
            crew.submit(0)
            wait_until(lambda: list(tmp_path.glob(f"began-0-{first.pid}")))
            crew.submit(1)  # waits behind the other until there is a second worker
            second = processes.worker(address, "second")

            def kill():
                wait_until(lambda: list(tmp_path.glob(f"began-1-{second.pid}")))
                processes.kill(first)
                wait_until(lambda: len(executor._link.threads) == 1)
                time.sleep(3)
                (tmp_path / "go").touch()

            with Meanwhile(kill):
                answers = sorted(crew.next() for _ in range(2))
            crew.close()
    assert answers == [(task, (10 * task, second.pid)) for task in range(2)]
    assert (tmp_path / "beginnings-1").read_text() == "x"


@pytest.mark.slow
def test_what_waits_behind_a_long_task_goes_to_the_idle(scheduler, tmp_path):
    go = tmp_path / "go"
    with connect(scheduler, timeout=60) as executor:
        wait_until(lambda: executor.parallel == 3 or executor._link.look())
        answers = executor.run(first_is_long, str(tmp_path), range(12))
        timer = threading.Timer(60, go.touch)
        timer.start()
        others = [next(answers)[0] for _ in range(11)]
        assert not go.exists(), "something waited for the long one"
        timer.cancel()
        go.touch()
        assert sorted(others) == list(range(1, 12))
        assert [task for task, _ in answers] == [0]


@pytest.mark.slow
def test_newcomers_that_do_not_fit_are_left_out(tmp_path, monkeypatch, capfd):
    """One without gatelab, then one that is silent; the work neither ends nor waits."""
    monkeypatch.setattr(dask_link, "_SILENCE", 15.0)
    told = []
    without = _gatelab(tmp_path, "raise ImportError('not for you')")
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        good = processes.worker(address, "good")

        def join():
            wait_until(lambda: list(tmp_path.glob(f"began-*-{good.pid}")))
            processes.worker(address, "bad", path=[without])
            wait_until(lambda: told)
            (tmp_path / "go").touch()

        with connect(address, timeout=60, notify=told.append) as executor:
            with Meanwhile(join):
                answers = list(executor.run(patient, str(tmp_path), range(9)))
            assert sorted(task for task, _ in answers) == list(range(9))
            assert {pid for _, (_, pid) in answers} == {good.pid}
            silent = processes.worker(address, "silent")
            wait_until(lambda: len(executor._link.client.nthreads()) == 3)
            os.kill(silent.pid, signal.SIGSTOP)
            executor._link.look()
            answers = list(executor.run(patient, str(tmp_path), range(9)))
            assert {pid for _, (_, pid) in answers} == {good.pid}
            assert len(told) == 1, "the work waited for the silent one"
            wait_until(lambda: len(told) == 2 or executor._link.look())
            executor._link.look()
            assert executor.parallel == 1
    assert re.fullmatch(r"worker bad \(tcp://.*\) cannot import gatelab \(.*not for you.*; it is left out", told[0])
    assert re.fullmatch(r"worker silent \(.*\) does not answer for 15 s; end it if it hangs; it is left out", told[1])
    assert len(told) == 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_scheduler_that_falls_silent_after_the_greeting(tmp_path, monkeypatch):
    clients = []
    with Processes(tmp_path) as processes:
        scheduler, address = processes.scheduler()
        connect_client = dask_link.Link._connect

        def stop_then(link, timeout):
            clients.append(connect_client(link, 60))
            os.kill(scheduler.pid, signal.SIGSTOP)
            return clients[0]

        monkeypatch.setattr(dask_link.Link, "_connect", stop_then)
        with pytest.raises(InputError, match=f"{address} took the connection, but then did not answer within 2 s"):
            connect(address, timeout=2).__enter__()
    assert clients[0].status == "closed"


@pytest.mark.slow
def test_all_workers_lost_then_the_scheduler(tmp_path, capfd):
    """First the only worker, which alone has what all tasks need, then the scheduler; nothing is missing in the end."""
    told, again = [], []
    with Processes(tmp_path) as processes:
        scheduler, address = processes.scheduler()
        first = processes.worker(address, "first")

        def trouble():
            wait_until(lambda: list(tmp_path.glob(f"began-*-{first.pid}")))
            processes.kill(first)
            wait_until(lambda: told)
            second = processes.worker(address, "second")
            wait_until(lambda: list(tmp_path.glob(f"began-*-{second.pid}")))
            processes.kill(scheduler)
            wait_until(lambda: len(told) == 2)
            again.append(processes.scheduler(int(address.rsplit(":", 1)[1]))[0])
            processes.worker(address, "third")
            (tmp_path / "go").touch()

        with connect(address, timeout=60, notify=told.append) as executor:
            with Meanwhile(trouble):
                answers = list(executor.run(patient, str(tmp_path), range(5)))
            processes.kill(*again)
            executor._link._patience = 1.0
            with pytest.raises(RunError, match=f"{address} was lost, and nobody answered there for 1 s; start it"):
                list(executor.run(patient, str(tmp_path), range(5)))
    assert sorted(task for task, _ in answers) == list(range(5))
    assert all(value == 10 * task for task, (value, _) in answers)
    assert told[0] == f"the scheduler at {address} has no workers any more; 2 tasks wait for new ones"
    assert told[1] == f"the scheduler at {address} is lost; looking for it for 60 s"
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_task_of_which_workers_die_is_given_up(tmp_path):
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        stop = threading.Event()

        def replace():
            while not stop.is_set():
                processes.worker(address, f"worker {time.monotonic()}").wait(timeout=100)

        with Meanwhile(replace), connect(address, timeout=60) as executor:
            with pytest.raises(RunError, match="workers died again and again while they worked on 3"):
                list(executor.run(die, str(tmp_path), [3]))
            stop.set()
            processes.__exit__()


def test_nobody_answers():
    address = f"tcp://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(InputError, match=f"no Dask scheduler answers at {address} within 0.5 s; start one"):
        connect(address, timeout=0.5).__enter__()
    assert time.monotonic() - began < 20


def test_somebody_takes_the_connection_and_says_nothing():
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
        with pytest.raises(InputError, match=r"worker old \(tcp://.*\) has gatelab 0.0.1, and here is"):
            connect(address, timeout=60).__enter__()


def _gatelab(folder, code):
    """Where a worker finds another gatelab."""
    (folder / "other" / "gatelab").mkdir(parents=True)
    (folder / "other" / "gatelab" / "__init__.py").write_text(code)
    return folder / "other"


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
    names = {"function": pow, "common": 2, "tasks": [3, 4]}
    exec(
        block.replace("tcp://node1:8786", scheduler).replace("        ...", "        told[task] = answer"),
        names | {"told": (told := {})},
    )
    assert told == {3: 8, 4: 16}
