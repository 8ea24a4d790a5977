"""Public fakes and factories for tests of ctxkernel and of code that builds on it."""

from ctxkernel.testing.answers import OVERFLOW as OVERFLOW
from ctxkernel.testing.answers import Answer as Answer
from ctxkernel.testing.answers import Cut as Cut
from ctxkernel.testing.answers import End as End
from ctxkernel.testing.answers import Garbage as Garbage
from ctxkernel.testing.answers import HttpError as HttpError
from ctxkernel.testing.answers import Stall as Stall
from ctxkernel.testing.answers import StreamError as StreamError
from ctxkernel.testing.answers import answer as answer
from ctxkernel.testing.answers import call as call
from ctxkernel.testing.answers import error as error
from ctxkernel.testing.answers import say as say
from ctxkernel.testing.answers import think as think
from ctxkernel.testing.server import MessagesServer as MessagesServer
from ctxkernel.testing.server import Received as Received
from ctxkernel.testing.server import Sent as Sent
from ctxkernel.testing.turns import FakeSource as FakeSource
from ctxkernel.testing.turns import FakeTracker as FakeTracker
from ctxkernel.testing.turns import Turns as Turns
from ctxkernel.testing.turns import graph_with as graph_with
from ctxkernel.testing.workers import AtOnce as AtOnce
from ctxkernel.testing.workers import HeldJobs as HeldJobs
