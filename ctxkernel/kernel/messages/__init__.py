"""The messages between the kernel and the front end, as types. `docs/panel-protocol.md` explains them.

`page_requests` has the requests of the panel, `wire` the other messages, and the other modules their parts.

Rule 1: these are the only definitions. `ctxkernel/lab/messages.d.ts` is generated from them, and the scripts of the
        front end are checked against it.
Rule 2: a message contains JSON values only. Every text in it is untrusted.
Rule 3: a field is `NotRequired` if this kernel can leave it out. The front end draws a missing field as nothing.
"""
