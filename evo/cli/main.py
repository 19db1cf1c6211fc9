"""The command line: find the command, run it, and end with the exit code and the last words that each case has.

A command is a module in `evo/cli/commands` with `add_arguments(parser)` and `main(arguments)`, which returns the exit
code, or the exit code and the facts that --json prints. Where the module has `SUMMARISED`, --json prints the summary of
a run, also after an error.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import resource
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from evo.cli.arguments import opened, refuse_others
from evo.errors import (
    FORBIDDEN,
    SHORTAGES,
    ConfigurationError,
    DataError,
    EvoError,
    OutOfMemoryError,
    ResourceError,
    counted,
    did_you_mean,
    printable,
    printable_lines,
    refuse_control,
    typed,
)
from evo.plugins import mistakes, registry
from evo.process import Stopped, hashes, ignore, is_interrupt, leave, lost_output, raise_stopped, tolerate_failures
from evo.store.metrics import Summary, one_line
from evo.version import __version__

LEAST_MEMORY = 500  # MB of address space that NumPy, HDF5 and LLVM take
PACKAGES = {"deap", "gymnasium", "h5py", "keras", "llvmlite", "numba", "numpy", "PIL", "pydantic", "rich", "tensorflow"}
HELP = {"-h", "--help", "-V", "--version"}  # they call no code of a user


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are ConfigurationErrors, with a suggestion for a misspelt option."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse; an argument that may be left out may also stand behind options, and any names may behind --."""
        words = list(args or ())
        end = words.index("--") if "--" in words else len(words)  # argparse forgets it before it looks at the names
        names = [f"./{word}" if word.startswith("-") else word for word in words[end + 1 :]]
        return self.parse_intermixed_args([*words[: end + 1], *names], namespace)

    def error(self, message: str) -> NoReturn:
        """Raise the mistake as a line that names the command."""
        wrong = [word for word in message.split() if word.startswith("--") and "unrecognized" in message]
        meant = did_you_mean(wrong[0].partition("=")[0], self._option_string_actions) if wrong else ""
        if found := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            meant = did_you_mean(found[1], re.findall(r"[\w-]+", found[2]))
        raise ConfigurationError(f"{self.prog}: {message}{meant or f' (see {self.prog} --help)'}")


def main(argv: Sequence[str] | None = None, program: str = "evo") -> int:
    """Run `evo COMMAND ...` and return its exit code; without `argv` this is the program, which a signal ends here."""
    if argv is None:
        _begin_again_with_hashes()
    words = list(sys.argv[1:] if argv is None else argv)
    known = registry.names("cli.commands", "main")
    if words and words[0] in known:
        code = execute(words[0], words[1:], f"{program} {words[0]}")
        return leave(code) if argv is None else code
    tolerate_failures()
    if words and words[0] in ("-V", "--version"):
        print(__version__)
        return _complete(0)
    if words and words[0] not in ("-h", "--help"):
        close = did_you_mean(words[0], known) or f" (there are {', '.join(known)})"
        print(f"{program}: {printable(words[0])} is not a command{close}", file=sys.stderr)
        return 2
    print(f"usage: {program} COMMAND ...\n\ncommands, each with its own --help:")
    for name in known:
        print(f"  {name:<10} {registry.summary('cli.commands', name)}")
    return _complete(0 if words else 2)


def main_run(argv: Sequence[str] | None = None) -> int:
    """Run `python -m evo.run ...` and return its exit code; without `argv` this is the program."""
    if argv is None:
        _begin_again_with_hashes()
    code = execute("run", list(sys.argv[1:] if argv is None else argv), "python -m evo.run")
    return leave(code) if argv is None else code


def _begin_again_with_hashes() -> None:
    """Have this program begin again in the same process with `hashes`, unless it has them, shows help or is traced."""
    wanted = {**os.environ, **hashes()}
    if not (wanted == os.environ or HELP & {*sys.argv} or sys.gettrace()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], wanted)


def execute(name: str, words: Sequence[str], program: str) -> int:
    """Run one command and return its exit code; with --json the last line of stdout is an object in every case."""
    tolerate_failures()
    module = import_module(f"evo.cli.commands.{name}")
    parser = Parser(prog=program, description=registry.summary("cli.commands", name), allow_abbrev=False)
    summary, summarised = Summary(), hasattr(module, "SUMMARISED")
    parser.set_defaults(summary=summary)
    module.add_arguments(parser)
    code: int
    facts: object = None
    try:
        raise_stopped()
        refuse_control(*words)
        arguments = parser.parse_args(words)
        _refuse_surroundings()
        refuse_others(opened(name, arguments))
        try:
            named = getattr(arguments, "experiment", None) or getattr(arguments, "what", [None])[0]
            plugins = getattr(arguments, "plugin", ())
            with mistakes.plug_in_calls_named(plugins):
                registry.load(plugins, named)
                answer = module.main(arguments)
            code, facts = answer if isinstance(answer, tuple) else (answer, None)
        except BaseException as end:
            if isinstance(end, Exception) or is_interrupt(end):
                raise
            raise mistakes.raised(end) or ConfigurationError(f"a library {mistakes.exception_text(end)}") from end
    except KeyboardInterrupt as stop:
        ignore()
        code = stop.exit_code if isinstance(stop, Stopped) else 130
        summary.status = "interrupted"
        _say("interrupted" if summary.run_dir is None else f"interrupted; {_saved(summary)}")
    except SystemExit:  # --help has been printed
        raise SystemExit(_complete(0)) from None
    except Exception as problem:
        known = failure_of(problem)
        if known is None:
            _say("".join(traceback.format_exception(problem)).rstrip("\n"))
            command = f"{program} {typed(words)}"
            bug = " or in the plug-in ".join(("this is a bug in snake-evo", *registry.loaded()))
            _say(f"{bug}; please report it with the lines above and the command:\n{command}")
        else:
            again = isinstance(known, DataError) or " resume " in str(known)  # resuming would fail too, or is named
            late = summary.run_dir and summary.generations and not again and os.path.isdir(summary.run_dir)
            _say(f"{known}; {_saved(summary)}" if late else str(known))
        code = known.exit_code if known else 1
        summary.status, summary.error = "failed", str(known) if known else f"{type(problem).__name__}: {problem}"
    if "--json" in words and summarised:
        print(summary.to_json(), flush=True)
    elif "--json" in words and (summary.error or summary.status == "interrupted"):
        print(one_line({"status": summary.status, "error": summary.error}), flush=True)
    elif "--json" in words and facts is not None:
        print(one_line(facts), flush=True)
    read = not summarised or {"--json", "--dry-run"} & {*words}  # a run goes on without readers of what it shows
    return _complete(code) if read else code


def _complete(code: int) -> int:
    """Return the exit code, or that of a full disk where standard output has lost something, with a line."""
    if code == 0 and (why := lost_output()):
        _say(f"standard output: {why}; what was printed is not complete")
        return ResourceError.exit_code
    return code


def _refuse_surroundings() -> None:
    """Raise an error where libraries do not fit into memory, Numba may not compile, or the directory is gone."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_MEMORY * 10**6:
        raise ResourceError(
            f"the address space of this process is limited to {limit // 10**6} MB, and the libraries need "
            f"{LEAST_MEMORY} MB; raise the limit with: ulimit -v unlimited"
        )
    if os.environ.get("NUMBA_DISABLE_JIT", "0").strip() not in ("", "0"):
        raise ConfigurationError("NUMBA_DISABLE_JIT is set, and games and networks are only played compiled; unset it")
    threads = os.environ.get("NUMBA_NUM_THREADS", "")
    if threads and not (threads.strip().isdecimal() and int(threads)):
        raise ConfigurationError(f"NUMBA_NUM_THREADS is {printable(threads)}; set it to 1 or more, or unset it")
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise ConfigurationError("the current directory was deleted; change to one that exists") from error


def failure_of(problem: BaseException) -> EvoError | None:
    """Return the failure that an exception stands for, or None where it stands for a bug."""
    if isinstance(problem, EvoError):
        return mistakes.raised(problem) or problem
    if isinstance(problem, MemoryError):
        return OutOfMemoryError("out of memory")
    if isinstance(problem, OSError):
        where = f"{problem.filename}: " if problem.filename else ""
        if not where and "temporary directory" in str(problem.strerror):  # all that Python has tried are full
            return ResourceError(f"{problem.strerror}; make room in one of them, or set TMPDIR")
        if problem.errno == errno.ENAMETOOLONG:
            return ConfigurationError(f"{where}{problem.strerror}")
        if problem.errno in SHORTAGES or (where and problem.errno in FORBIDDEN):
            return ResourceError(f"{where}{problem.strerror}")
    if isinstance(problem, ModuleNotFoundError) and (name := (problem.name or "").partition(".")[0]) in PACKAGES:
        return ConfigurationError(
            f"{sys.executable} has no package {name}; activate the environment that was made for this program "
            "(. .venv/bin/activate), or install what requirements.lock lists"
        )
    return mistakes.raised(problem)


def _saved(summary: Summary) -> str:
    count = summary.generations or 0
    safe = f"{counted(count, 'generation')} {'is' if count == 1 else 'are'} saved"
    return f"{safe}; continue with: {registry.command('evo', 'resume', str(summary.run_dir))}"


def _say(text: str) -> None:
    print(printable_lines(text), file=sys.stderr)
