"""Parameter sweeps: combinations of parameters, the tasks that run them, and the processes that run the tasks.

    combinations     the parameters as a user writes them → combinations
    assignments      the text of a cell with another value of a parameter
    plan             cells and combinations → a tree of tasks; common prefixes are one task
    driver_client    in the kernel: starts the driver and exchanges messages with it
    driver           a process beside the kernel that hands tasks to Dask (`executors`)
    worker           a worker: it keeps a kernel, which runs the cells of a task
    chunk_exchange   stored data of states, copied to and from the store of a sweep
    seal             signed messages between the kernel, the driver and the workers
    environment      the packages here and on the workers, compared
    table, plots     the rows of the result, as text, as a data frame and as small plots

Rule 1: no module of this package is imported by a kernel before it sweeps; only `executors` imports Dask.
Rule 2: a task is idempotent: its key is a digest of all that its result depends on.
Rule 3: a message is used only after its signature was verified; nothing in it is unpickled.
"""
