"""Writes the async API from the signatures and docstrings of the synchronous one.

python tools/generate_async.py             write the files
python tools/generate_async.py --check     list outdated files, and exit with 1 if any
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "unspool"
COMMAND = "python tools/generate_async.py"
# methods that return at once and never wait
IMMEDIATE = {"observe"}
# members of `Corpus` without an async form
LEFT_OUT = {"keys"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """A class to generate: its synchronous original, and what the async class adds."""

    original: str  # the name of the synchronous class
    module: str  # the file of that class, below src/unspool
    summary: str  # the docstring
    attribute: str  # the name of the wrapped object
    extra: str = ""  # members that the original does not define as methods
    limiter: bool = False  # whether answers are streamed

    @property
    def name(self) -> str:
        """The name of the generated class."""
        return f"Async{self.original}"


@dataclass(frozen=True, kw_only=True)
class Output:
    """A file to generate."""

    path: Path
    docstring: str
    imports: str
    typing_imports: str = ""
    preamble: str = ""
    targets: tuple[Target, ...]
    has_callbacks_in_loop: bool = False


SETTINGS = '''
    @property
    def settings(self) -> Settings:
        """The settings it was opened with."""
        return self._corpus.settings
'''
OPEN_BODY = """
    return manage(partial(_open, {arguments}), _wrap)
"""
OPEN_PREAMBLE = """
_open: Callable[..., Corpus | RemoteCorpus] = opening.open


{open}


def _wrap(corpus: Corpus | RemoteCorpus) -> AsyncCorpus | AsyncRemoteCorpus:
    if isinstance(corpus, Corpus):
        return AsyncCorpus(corpus)
    from unspool.client import AsyncRemoteCorpus

    return AsyncRemoteCorpus(corpus)
"""
LOCAL = Output(
    path=SOURCE / "aio.py",
    docstring=f'''"""The corpus for async programs, generated from `Corpus` by `{COMMAND}`.

    async with unspool.aio.open() as corpus:
        page = await corpus.search("how are sessions opened?")

Every method runs in a thread.
"""''',
    imports="""
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload
import anyio
from unspool import opening
from unspool.settings import Settings
from unspool.threads import ANSWERS_AT_ONCE, AsyncAnswerStream, manage, run
""",
    typing_imports="""
if TYPE_CHECKING:
    from unspool.client import AsyncRemoteCorpus, RemoteCorpus
""",
    preamble=OPEN_PREAMBLE,
    targets=(
        Target(
            original="Corpus",
            module="corpus.py",
            summary=(
                "An open corpus whose methods are awaited.\n\n"
                "    A call that is cancelled still runs to its end in its thread.\n    "
            ),
            attribute="corpus",
            extra=SETTINGS,
            limiter=True,
        ),
        Target(
            original="Conversations",
            module="memory/conversations.py",
            summary="Conversations whose methods are awaited.",
            attribute="conversations",
        ),
        Target(
            original="History",
            module="memory/history.py",
            summary="A history whose methods are awaited.",
            attribute="history",
        ),
    ),
)
OUTPUTS = (LOCAL,)


def render(output: Output) -> str:
    """Return the text of a generated file."""
    classes = [render_class(output, target) for target in output.targets]
    body = output.preamble.format(open=render_open()) + "\n\n" + "\n\n".join(classes)
    used = set(re.findall(r"\w+", body))
    imports = output.imports
    for target in output.targets:
        imports += "".join(list_imports(target, used))
    imports += output.typing_imports
    text = f"{output.docstring}\n\nfrom __future__ import annotations\n{imports}\n{body}\n"
    for arguments in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        text = run_ruff(arguments, text, output.path)
    return text


def run_ruff(arguments: list[str], text: str, path: Path) -> str:
    """Return a file's text after a command of ruff."""
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(path), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"ruff {arguments[0]} failed on {path.name}: {done.stdout}{done.stderr}")
    return done.stdout


def list_imports(target: Target, used: set[str]) -> Iterator[str]:
    """Yield the imports of an original for the names that the generated class uses."""
    module = "unspool." + target.module.removesuffix(".py").replace("/", ".")
    yield f"from {module} import {target.original}\n"
    for node in ast.walk(parse(target.module)):
        if isinstance(node, ast.ImportFrom) and node.col_offset in (0, 4):
            for one in node.names:
                is_wrapped = one.name.endswith("AnswerStream")
                if (one.asname or one.name) in used and not is_wrapped:
                    renamed = f" as {one.asname}" if one.asname else ""
                    yield f"from {node.module} import {one.name}{renamed}\n"


def parse(module: str) -> ast.Module:
    """Parse a file below src/unspool."""
    return ast.parse((SOURCE / module).read_text(encoding="utf-8"))


def render_open() -> str:
    """Return `open` with the parameters of `unspool.open`."""
    found = [
        node
        for node in parse("opening.py").body
        if isinstance(node, ast.FunctionDef) and node.name == "open"
    ]
    out = []
    for node, kind in zip(found, ("AsyncCorpus", "AsyncRemoteCorpus", "Any"), strict=True):
        lines = "@overload\n" if node.decorator_list else ""
        # the comma keeps one parameter in a line, and the comment where ruff looks for it
        parameters = ",\n    ".join(split_parameters(node.args))
        lines += f"def open(  # noqa: A001\n    {parameters},\n"
        lines += f") -> AbstractAsyncContextManager[{kind}]:"
        if node.decorator_list:
            lines += " ..."
        else:
            lines += f'\n    """{ast.get_docstring(node, clean=False)}"""'
            lines += OPEN_BODY.format(arguments=render_arguments(node.args))
        out.append(lines)
    return "\n\n".join(out)


def split_parameters(args: ast.arguments) -> list[str]:
    """Return the parameters of `open` as text: `address`, a star, and names with defaults."""
    first = args.args[0]
    assert first.annotation is not None
    shown = [f"{first.arg}: {ast.unparse(first.annotation)} = {ast.unparse(args.defaults[0])}", "*"]
    for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        value = "" if default is None else f" = {ast.unparse(default)}"
        assert one.annotation is not None
        shown.append(f"{one.arg}: {ast.unparse(one.annotation)}{value}")
    return shown


def render_class(output: Output, target: Target) -> str:
    """Return a generated class."""
    tree = parse(target.module)
    original = next(
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == target.original
    )
    out = [f'class {target.name}:\n    """{target.summary}"""\n']
    out.append(
        f"    def __init__(self, {target.attribute}: {target.original}) -> None:\n"
        f"        self._{target.attribute} = {target.attribute}\n"
    )
    if target.limiter:
        out[-1] += "        self._limiter = anyio.CapacityLimiter(ANSWERS_AT_ONCE)\n"
    if target.extra:
        out.append(target.extra)
    source = (SOURCE / target.module).read_text(encoding="utf-8")
    for node in original.body:
        is_method = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if is_method and node.name not in LEFT_OUT:
            out.append(render_method(output, target, node, source))
    return "\n".join(out)


def render_method(output: Output, target: Target, node: ast.FunctionDef, source: str) -> str:
    """Return the async form of a method or a property."""
    assert node.returns is not None
    returned = ast.unparse(node.returns)
    stream = returned.endswith("AnswerStream")
    wrapped = next((one.name for one in output.targets if one.original == returned), "")
    result = "AsyncAnswerStream" if stream else wrapped or returned
    is_property = bool(node.decorator_list)
    member = f"self._{target.attribute}.{node.name}"
    called = f"{member}({render_arguments(node.args)})"
    if is_property or node.name in IMMEDIATE:
        value = member if is_property else called
        body = f"return {wrapped}({value})" if wrapped else f"return {value}"
    elif node.name == "ask":
        body = translate(node, source)
    else:
        arguments = ", ".join(filter(None, (member, render_arguments(node.args))))
        if output.has_callbacks_in_loop:
            arguments = arguments.replace("=on_progress", "=call_in_loop(on_progress)")
        value = f"await run({arguments})"
        body = f"return {value}"
        if stream:
            body = f"return AsyncAnswerStream({value}, self._limiter)"
        elif wrapped:
            body = f"return {wrapped}({value})"
        elif returned == "Page":
            # `page.more()` would wait in the caller's thread
            body = f"return replace({value}, follow=None)"
    decorator = "    @property\n" if is_property else ""
    prefix = "" if is_property or node.name in IMMEDIATE else "async "
    return (
        f"{decorator}    {prefix}def {node.name}({ast.unparse(node.args)}) -> {result}:\n"
        f'        """{ast.get_docstring(node, clean=False)}"""\n'
        f"        {body}\n"
    )


def render_arguments(args: ast.arguments) -> str:
    """Return the arguments that pass on every parameter."""
    shown = [one.arg for one in args.args if one.arg != "self"]
    shown += [f"*{args.vararg.arg}"] if args.vararg else []
    shown += [f"{one.arg}={one.arg}" for one in args.kwonlyargs]
    return ", ".join(shown)


def translate(node: ast.FunctionDef, source: str) -> str:
    """Return the body of a method over an answer stream with the same statements, awaited."""
    lines = source.splitlines()[node.body[1].lineno - 1 : node.end_lineno]
    text = "\n".join(lines).strip()
    text = text.replace("with self.answering(", "async with await self.answering(")
    return text.replace("for piece in", "async for piece in")


def main() -> int:
    """Write or check the files; return the exit code."""
    is_check = "--check" in sys.argv[1:]
    changed = [
        output.path for output in OUTPUTS if output.path.read_text("utf-8") != render(output)
    ]
    for path in changed:
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
        if not is_check:
            output = next(one for one in OUTPUTS if one.path == path)
            path.write_text(render(output), encoding="utf-8")
    return int(is_check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
