"""Where hooks for PyTorch go wrong, and which tests watch each place."""

import pathlib
import re

import pytest

CORNERS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("the hook is a plain function with real annotations", ("test_the_hook_is_what_torch_accepts",)),
    2: (
        "what bypasses or occupies the hook is refused",
        ("test_what_bypasses_hooks_is_refused_with_the_reason", "test_parameters_and_optimisers_that_bypass_the_hook_are_pointed_out_or_refused"),
    ),
    3: (
        "a group of some ranks waits for no others",
        ("test_ranks_outside_a_group_are_not_waited_for_and_can_make_groups_later", "test_a_part_of_the_ranks_reduces_among_itself"),
    ),
    4: ("ranks compare what they have when they register", ("test_ranks_that_differ_are_refused_on_every_rank",)),
    5: (
        "a state may be made before any process group",
        ("test_a_state_may_be_made_before_any_process_group", "test_a_state_made_before_its_model_is_bound_later"),
    ),
    6: ("an exception survives the future", ("test_an_error_on_one_rank_reaches_every_rank_in_its_own_words_and_stays",)),
    7: ("nothing is raised inside the hook", ("test_an_error_on_one_rank_reaches_every_rank_in_its_own_words_and_stays",)),
    8: ("buckets after a failed one end too", ("test_an_error_in_one_of_several_buckets_ends_all_ranks_long_before_the_timeout",)),
    9: ("results start at offset 0", ("test_futures_complete_on_the_engines_thread_with_ddps_own_buffer_from_its_start",)),
    10: (
        "a device's memory is ordered by its streams",
        ("test_memory_of_a_device_is_copied_held_and_given_back_in_order", "test_the_path_of_a_device_gives_the_bits_of_the_cpu"),
    ),
    11: ("gloo's messages have no futures: a thread waits", ("test_python_runs_beside_waits",)),
    12: ("the hook runs under the reducer's lock", ("test_the_reducer_is_never_asked_anything",)),
    13: (
        "completion from another thread, static_graph's first step included",
        ("test_futures_complete_on_the_engines_thread_with_ddps_own_buffer_from_its_start", "test_the_result_does_not_depend_on_the_buckets_of_ddp"),
    ),
    14: ("peers of a failed rank that lives on fail at once", ("test_an_error_on_one_rank_reaches_every_rank_in_its_own_words_and_stays",)),
    15: ("static_graph's first step numbers all buckets 0", ("test_the_result_does_not_depend_on_the_buckets_of_ddp",)),
    16: (
        "buckets are rebuilt",
        (
            "test_the_result_does_not_depend_on_the_buckets_of_ddp",
            "test_buckets_that_are_rebuilt_for_another_group_of_the_same_ranks_give_the_same_bits",
        ),
    ),
    17: ("buckets may be left out", ("test_parameters_that_only_some_ranks_use_and_buckets_that_are_left_out",)),
    18: ("buckets may be allocated anew", ("test_buckets_that_are_allocated_anew_in_every_step_give_the_same_bits",)),
    19: ("a parameter that nobody used loses nothing", ("test_globally_unused_parameters_lose_nothing",)),
    20: ("Join", ("test_ranks_with_fewer_batches_join", "test_a_mean_over_fewer_ranks_is_said_to_be_impossible_once")),
    21: ("sparse and float64 gradients", ("test_gradients_it_does_not_take_are_reduced_densely_with_one_warning",)),
    22: (
        "channels last",
        ("test_channels_last_models_keep_their_residuals_in_logical_order", "test_channels_last_is_kept_in_its_logical_order"),
    ),
    23: (
        "manual finalisation, two backward passes, the debug wrapper",
        (
            "test_a_backward_pass_that_is_finalised_by_hand_gives_the_same_bits_and_loses_nothing",
            "test_every_backward_pass_is_a_step",
            "test_the_debug_wrapper_and_staging_through_host_memory_give_the_same_bits",
        ),
    ),
    24: (
        "a skipped bucket returns NaN",
        ("test_nan_on_one_rank_never_enters_a_residual", "test_a_step_that_the_scaler_skips_leaves_parameters_and_residuals_and_lowers_the_scale"),
    ),
    25: ("a skipped bucket holds the others back", ("test_nan_on_one_rank_never_enters_a_residual",)),
    26: ("gradients that another hook rounded", ("test_gradients_that_another_hook_has_rounded_are_pointed_out_once",)),
    27: (
        "dense tensors have equal bits on all ranks",
        ("test_biases_and_norms_are_reduced_densely", "test_four_processes_have_the_same_bits_after_every_step"),
    ),
    28: ("FSDP2: flat shards, by name", ("test_sparse_replicas_agree_and_keep_what_is_left",)),
    29: ("FSDP2: the mean over replicas is taken in the hook", ("test_replicas_agree_and_density_one_is_the_mean_over_all_ranks",)),
    30: ("FSDP2: micro-batches", ("test_accumulated_gradients_are_exchanged_once",)),
    31: ("FSDP2: a shard whose length changes", ("test_a_shard_that_changes_its_length_is_refused_with_the_reason",)),
    32: ("FSDP2 on the CPU", ("test_replicas_agree_and_density_one_is_the_mean_over_all_ranks", "test_fsdp2")),
    33: (
        "threads at exit, forks",
        (
            "test_a_script_ends_by_itself_with_a_group_that_nobody_closed",
            "test_loaders_that_fork_do_no_harm",
            "test_importing_needs_neither_torch_nor_numpy_and_starts_no_thread",
        ),
    ),
}


@pytest.mark.light
def test_every_corner_has_tests_that_exist() -> None:
    files = pathlib.Path(__file__).parent.glob("test_*.py")
    there = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)}
    assert list(CORNERS) == list(range(1, 34))
    for number, (corner, tests) in CORNERS.items():
        assert tests and there.issuperset(tests), f"{number}, {corner}: {set(tests) - there} are not there"
