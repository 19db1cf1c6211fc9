"""Signals as a terminal would have them: background jobs ignore SIGINT, nohup SIGHUP, and children inherit it."""

import signal

for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)
