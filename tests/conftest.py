"""Signals as a terminal would have them: a shell's background job ignores SIGINT, and its children inherit that."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
