"""`python -m ctxkernel.kernel`: what the kernelspec starts."""

import sys

if __name__ == "__main__":
    # The folder that the kernel is started in must not shadow modules of ours while we import.
    if sys.path and sys.path[0] == "":
        del sys.path[0]

    from ctxkernel.kernel.app import main

    main()
