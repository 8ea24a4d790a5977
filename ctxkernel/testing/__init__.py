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
from ctxkernel.testing.fake_loop import FakeSource as FakeSource
from ctxkernel.testing.fake_loop import FakeTracker as FakeTracker
from ctxkernel.testing.fake_loop import Turns as Turns
from ctxkernel.testing.fake_loop import graph_with as graph_with
from ctxkernel.testing.fake_workers import AtOnce as AtOnce
from ctxkernel.testing.fake_workers import HeldJobs as HeldJobs
from ctxkernel.testing.messages_server import MessagesServer as MessagesServer
from ctxkernel.testing.messages_server import Received as Received
from ctxkernel.testing.messages_server import Sent as Sent
