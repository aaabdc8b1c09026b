"""Every sentence of docs/promise.md, "What you can rely on", has tests, named here."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The beginning of each sentence, and the tests that would fail if it were untrue.
TESTS = {
    "No call changes parameters": ["attacks/state/test_state.py::test_nothing_is_left_behind"],
    "A model whose forward writes": [
        "attacks/state/test_state.py::test_forward_that_writes_into_its_own_weights_is_refused"
    ],
    "No call moves the state of torch's generators": [
        "attacks/state/test_state.py::test_nothing_is_left_behind",
        "attacks/state/test_state.py::test_global_generator_of_a_random_model",
        "attacks/state/test_threads.py::test_users_own_draws_meanwhile",
    ],
    "Numbers that your forward draws": ["attacks/state/test_state.py::test_global_generator_of_a_random_model"],
    "A forward that hides its draws": ["attacks/state/test_state.py::test_draws_inside_a_function_are_refused"],
    "So is one that seeds torch": ["attacks/state/test_state.py::test_forward_that_seeds_torch"],
    "A forward that draws from NumPy": [
        "attacks/state/test_state.py::test_output_that_depends_on_hidden_draws",
        "attacks/state/test_state.py::test_output_that_depends_on_a_generator_of_the_model",
    ],
    "An output that changes with probability p": ["attacks/state/test_state.py::test_output_that_changes_rarely"],
    "Draws in vain are accepted": [
        "attacks/state/test_state.py::test_draws_in_vain",
        "attacks/state/test_state.py::test_draws_in_vain_from_a_generator_of_the_model",
    ],
    "Not looked for are draws": ["attacks/state/test_state.py::test_draws_that_are_not_looked_for"],
    "If such draws change the output": ["attacks/state/test_state.py::test_draws_that_are_not_looked_for"],
    "While other threads run, gatelab leaves": [
        "attacks/state/test_state.py::test_answer_that_depends_on_hidden_draws_while_other_threads_run",
        "attacks/state/test_state.py::test_states_are_left_alone_while_other_threads_run",
    ],
    "gatelab itself draws nothing": ["attacks/state/test_state.py::test_nothing_is_left_behind"],
    "Any number of threads": [
        "attacks/state/test_threads.py::test_threads_with_models_of_their_own",
        "attacks/state/test_threads.py::test_threads_with_one_model",
    ],
    "Nothing outside the calling thread is patched": [
        "attacks/state/test_threads.py::test_users_own_forwards_meanwhile",
        "attacks/state/test_threads.py::test_users_own_gradients_meanwhile",
    ],
    "One thing is shared": ["lab/test_training.py::test_the_global_generator_is_seeded_only_for_networks_that_draw"],
    "Where `gl.study` or an experiment": [
        "lab/test_training.py::test_the_global_generator_is_seeded_only_for_networks_that_draw",
        "lab/test_training.py::test_batch_norm_and_dropout_train_and_are_taken_up",
    ],
    "Training a network that draws nothing": [
        "lab/test_training.py::test_the_global_generator_is_seeded_only_for_networks_that_draw"
    ],
    "The caller's autocast": [
        "attacks/arguments/test_inputs.py::test_callers_autocast",
        "attacks/arguments/test_inputs.py::test_inside_inference_mode",
        "attacks/arguments/test_inputs.py::test_callers_default_dtype",
        "attacks/arguments/test_inputs.py::test_callers_default_device",
        "attacks/state/test_state.py::test_under_the_callers_settings",
    ],
    "Every call that returns": [
        "attacks/behaviour/test_modules.py::test_hidden_gate",
        "attacks/behaviour/test_branches.py::test_random_network",
    ],
    "Even a weak dependence": [
        "attacks/behaviour/test_branches.py::test_mixed_examples_have_no_kernel",
        "attacks/behaviour/test_branches.py::test_gates_of_mixed_examples",
        "attacks/behaviour/test_branches.py::test_examples_that_are_elsewhere_inside",
        "attacks/behaviour/test_branches.py::test_twin_of_mixed_examples",
    ],
    "A run or kernel that was interrupted": [
        "lab/test_kill.py::test_a_study_killed_twenty_times",
        "lab/test_kill.py::test_killed_while_it_trains",
        "kernels/disk/test_store.py::test_killed_it_ends_with_the_same_bits",
        "kernels/disk/test_cluster.py::test_workers_that_are_killed_change_nothing",
    ],
    "Damage is found by": [
        "attacks/test_damaged_files.py::test_damage_is_named_and_redone_on_request",
        "attacks/test_damaged_files.py::test_damage_is_never_used_silently",
        "attacks/test_damaged_stores.py::test_changed_metadata_are_refused_and_redone_on_request",
        "attacks/test_damaged_stores.py::test_changed_tiles_and_lines_are_computed_again",
    ],
    "A journal that lost its last lines": [
        "attacks/test_damaged_files.py::test_a_journal_that_lost_its_last_line_is_completed"
    ],
    "[SECURITY.md]": ["attacks/test_security.py::test_a_pickle_is_not_opened"],
}


def _sentences():
    """The sentences of the promise, without the bold words that start each point."""
    section = (ROOT / "docs/promise.md").read_text()
    for point in re.findall(r"^- \*\*.*?\*\* (.*?)(?=^- |\Z)", section, re.MULTILINE | re.DOTALL):
        yield from re.split(r"(?<=[a-z)])\. (?=[A-Z\[]|gatelab)", " ".join(point.split()))


@pytest.mark.parametrize("sentence", list(_sentences()))
def test_every_sentence_has_tests(sentence):
    assert [start for start in TESTS if sentence.startswith(start)], f"name tests for: {sentence}"


def test_no_test_is_named_for_a_sentence_that_is_gone():
    assert not [start for start in TESTS if not any(s.startswith(start) for s in _sentences())]


@pytest.mark.parametrize("test", sorted({test for tests in TESTS.values() for test in tests}))
def test_every_named_test_exists(test):
    file, name = test.split("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert len(found) == 1
