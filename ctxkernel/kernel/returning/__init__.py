"""Checkpoints, the returns to them, and the plans of returns.

Others may use `checkpoint_service` (what a turn does), `checkpoint_health` (what is wrong), `targets` (jobs),
`file_states` and, through `CheckpointService.needed()`, `returns`. The other modules serve `returns`.
"""
