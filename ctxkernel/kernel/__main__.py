"""`python -m ctxkernel.kernel`: what the kernelspec starts."""

import gc
import sys

if __name__ == "__main__":
    # The folder that the kernel is started in must not shadow modules of ours while we import.
    if sys.path and sys.path[0] == "":
        del sys.path[0]

    # Modules leave next to no garbage, and each collection while they load looks at all objects anew.
    # `CtxKernelApp` switches it on again before any code of the user runs.
    gc.disable()
    from ctxkernel.kernel.app import main

    main()
