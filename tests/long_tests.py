"""The tests that the quick run leaves out, since they take long.

`python -m pytest -m long` runs them. A pattern matches a test's id from the name of its file on; `*` stands for any
characters. Beside it: the test of the quick run that holds the claim, or why none is needed there.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

LONG = {
    "test_export.py::test_five_hundred_cells*": "a session of thirty cells with images",
    "test_bench_command.py::test_a_question_right_after_a_cell_that_failed*": "the recorded run",
    "test_bench_command.py::test_the_recorded_run_passes_every_task": "the recording of one task, replayed",
    "test_bench_command.py::test_ctrl_c_prints_the_tasks_that_were_played": "none: a signal to a command of its own",
    "test_bench_command.py::test_the_script_dialect*[]": "fenced blocks",
    "test_bench_command.py::test_each_repetition_counts*": "tasks that pass and fail",
    "test_bench_command.py::test_no_task_begins_after_the_budget*": "--budget of an ask",
    "test_bench_command.py::test_a_model_that_never_ends*": "--max-turns of an ask",
    "test_bench_command.py::test_settings_of_the_user_do_not_count*": "none: one setting of the command",
    "test_bench_command.py::test_a_kernel_that_the_model_kills*": "a request that fails",
    "test_reconnect_kernel.py::test_a_connection_in_large_data*": "the other connections of the file",
    "test_returns_reported.py::test_an_element_that_was_written_*records]": "the other rows",
    "test_headless.py::test_in_mode_auto_an_ask_is_answered*[nbclient-python3]": "nbclient with our kernel",
    "test_chunks_harm.py::test_a_kernel_that_is_killed_beside_its_writers*[1]": "the first batch",
    "test_chunks_harm.py::test_a_kill_at_any_instant_loses_nothing_that_was_stored*[1]": "the first batch",
    "test_chunks_harm.py::test_a_kill_at_any_instant_loses_nothing_that_was_stored*[2]": "the first batch",
    "test_pytest_plugin.py::test_what_is_wrong_fails_the_notebook*a missing turn]": "the other rows",
    "test_pytest_plugin.py::test_what_is_wrong_fails_the_notebook*no file of turns]": "the other rows",
    "test_cli_returning.py::test_goto_before_and_goto_a_name_are_places_too": "%ctx goto of the same places",
    "test_cli_returning.py::test_a_port_that_another_program_took*": "a port that is tried again",
    "browser/test_panel.py::test_the_panel_remembers_that_it_was_closed": "the panel after a reload",
    "browser/test_panel.py::test_versions_that_differ_are_named_with_the_next_step": "test_renderer",
    "browser/test_panel.py::test_another_kernel_does_not_open_the_panel*": "the panel that opens by itself",
    "browser/test_panel.py::test_two_browser_tabs_show_the_same_session": "the panel after a reload",
    "browser/test_panel.py::test_the_panel_follows_the_notebook_in_front": "the panel that fills cell by cell",
    "browser/test_panel.py::test_the_panel_says_that_a_cell_runs": "test_renderer",
    "browser/test_panel.py::test_a_long_session_is_drawn_by_what_changed": "test_renderer",
    "browser/test_marks.py::test_the_marks_are_right_again_after_a_reload*": "the marks after a return",
    "browser/test_marks.py::test_the_marks_take_no_room*": "test_labextension: the settings",
    "browser/test_following.py::test_a_kept_text_survives_a_reload*": "the text that is kept in the metadata",
    "browser/test_marks.py::test_the_marks_follow_a_restart_and_a_kernel_that_died": "the marks after a reload",
    "browser/test_marks.py::test_a_connection_that_was_cut*": "the marks after a reload",
    "browser/test_marks.py::test_a_long_notebook_keeps_its_marks*": "the marks of a short one",
    "browser/test_marks.py::test_a_re_run_says_which_cells_wait": "the marks after a return",
    "browser/test_following.py::test_cells_that_the_branch_does_not_have*": "the offer after a return",
    "browser/test_asking.py::test_a_saved_notebook_has_no_buttons": "test_kernel_asking: the data of a proposal",
    "browser/test_asking.py::test_cells_of_the_model_are_put_into_the_notebook*": "test_kernel_asking",
    "browser/test_asking.py::test_an_ask_stands_together_in_the_timeline": "test_renderer",
    "browser/test_asking.py::test_a_cell_is_approved_by_the_keyboard": "the button",
    "browser/test_asking.py::test_a_cell_is_edited_before_it_runs": "test_kernel_asking: %ctx edit",
    "browser/test_asking.py::test_a_cell_is_rejected_with_a_reason*": "test_kernel_asking: %ctx reject",
    "browser/test_asking.py::test_commands_decide_on_what_waits": "test_kernel_asking: the commands",
    "browser/test_asking.py::test_the_keyboard_is_never_taken_from_an_editor": "the approval by its button",
    "browser/test_asking.py::test_run_all_runs_what_follows_in_this_ask": "Run All that stops at an ask",
    "browser/test_asking.py::test_the_panel_says_that_a_model_is_asked_and_stops_it": "test_stop_ends_the_ask",
    "browser/test_history.py::test_the_history_is_condensed_opened_and_brought_back": "the redaction in the panel",
    "browser/test_history.py::test_a_redaction_that_saves_nothing_is_refused*": "test_history_redact",
    "browser/test_history.py::test_the_inline_panel_opens*": "the inline panel of test_returning",
    "browser/test_history.py::test_an_earlier_projection_is_compared*": "test_supposing, test_renderer",
    "browser/test_returning.py::test_a_killed_kernel_comes_back_where_it_was": "test_returning in a kernel",
    "browser/test_returning.py::test_a_re_run_stops_at_the_first_error": "test_returning in a kernel",
    "browser/test_returning.py::test_a_cell_that_is_marked_is_not_run_again_unasked": "test_returning in a kernel",
    "browser/test_hostile.py::test_hostile_texts_in_every_field*[1]": "the first part of the texts",
    "browser/test_hostile.py::test_hostile_texts_in_every_field*[2]": "the first part of the texts",
    "browser/test_hostile.py::test_hostile_texts_in_every_field*[3]": "the first part of the texts",
    "browser/test_hostile.py::test_hostile_texts_in_every_field*[4]": "the first part of the texts",
    "browser/test_hostile.py::test_hostile_texts_in_every_field*[5]": "the first part of the texts",
    "browser/test_hostile.py::test_hostile_texts_in_every_field*[6]": "the first part of the texts",
    "browser/test_hostile.py::test_hostile_texts_in_every_field*[7]": "the first part of the texts",
    "browser/test_hostile.py::test_hostile_texts_stay_text_in_notebook_7": "the same in JupyterLab",
    "browser/test_hostile.py::test_a_notebook_of_somebody_else_shows*": "the texts of a session",
    "browser/test_hostile.py::test_a_card_says_how_long_its_code_is": "a card that shows all of its code",
    "test_code_quality.py::test_the_types_hold": "the type checker is no behaviour",
    "test_returning.py::test_values_whose_stored_form_leaves_something_out_*60000]": "the other sizes",
    "test_headless.py::test_in_mode_auto_an_ask_is_answered*[nbconvert-*": "nbclient",
    "test_headless.py::test_in_mode_auto_an_ask_is_answered*[papermill-*": "nbclient",
    "test_headless.py::test_in_mode_auto_an_ask_is_answered*[ctxkernel-*": "nbclient",
    "test_headless.py::test_an_ask_that_would_wait*[nbconvert]": "papermill",
    "test_headless.py::test_an_ask_that_would_wait*[nbclient]": "papermill",
    "test_headless.py::test_a_notebook_runs_headless*[papermill-python3]": "nbclient with the same kernel",
    "test_headless.py::test_a_notebook_runs_headless*[nbconvert-python3]": "nbclient with the same kernel",
    "test_cli_returning.py::test_a_port_that_another_took_meanwhile_is_tried_again_thrice[3-1]": "the other row",
    "test_cli_returning.py::test_a_command_that_is_stopped_while_its_kernel_starts_says_so[15]": "the other signal",
    "test_rerun_notebooks.py::test_the_tour_runs_again_without_a_difference": "the notebooks of the same file",
    "test_injection_asks.py::test_every_order_is_tried_at_every_place*": "each order at one place",
    "test_kernel_harm.py::test_slow_views_over_the_bound_wait*Periodic*": "the other frequency",
}


def is_long(nodeid: str) -> bool:
    """Return whether the quick run leaves out a test."""
    name = nodeid.rpartition("tests/")[2]
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in LONG)
