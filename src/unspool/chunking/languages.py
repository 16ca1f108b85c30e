"""Languages of files: detection by name and content, the kind of text, and the grammar."""

from __future__ import annotations

import re

from unspool.domain.documents import Kind

TEXT = "text"

_EXTENSIONS = {
    "python": "py pyi pyw pyx pxd",
    "javascript": "js mjs cjs jsx es6",
    "typescript": "ts mts cts",
    "tsx": "tsx",
    "java": "java",
    "go": "go",
    "rust": "rs",
    "c": "c h",
    "cpp": "cc cpp cxx c++ hh hpp hxx h++ ipp inl tpp cu cuh ino",
    "csharp": "cs csx",
    "ruby": "rb rake gemspec ru podspec",
    "php": "php php3 php4 php5 phtml",
    "bash": "sh bash zsh ksh ash bats",
    "swift": "swift",
    "kotlin": "kt kts",
    "scala": "scala sc sbt",
    "lua": "lua rockspec",
    "sql": "sql ddl dml psql pgsql",
    "html": "html htm xhtml",
    "css": "css",
    "scss": "scss",
    "less": "less",
    "sass": "sass",
    "vue": "vue",
    "svelte": "svelte",
    "astro": "astro",
    "perl": "pl pm",
    "r": "r",
    "julia": "jl",
    "haskell": "hs lhs",
    "ocaml": "ml mli",
    "fsharp": "fs fsi fsx",
    "vb": "vb vbs bas",
    "pascal": "pas dpr",
    "elixir": "ex exs",
    "erlang": "erl hrl",
    "clojure": "clj cljs cljc edn",
    "lisp": "lisp lsp el scm ss rkt",
    "dart": "dart",
    "groovy": "groovy gradle",
    "starlark": "bzl star",
    "objectivec": "m mm",
    "zig": "zig",
    "nim": "nim",
    "crystal": "cr",
    "d": "d",
    "verilog": "v sv svh",
    "vhdl": "vhd vhdl",
    "fortran": "f f77 f90 f95 f03 f08 for",
    "cobol": "cob cbl",
    "ada": "adb ads",
    "assembly": "asm s",
    "solidity": "sol",
    "powershell": "ps1 psm1 psd1",
    "batch": "bat cmd",
    "fish": "fish",
    "awk": "awk",
    "tcl": "tcl",
    "vim": "vim",
    "nix": "nix",
    "terraform": "tf tfvars hcl",
    "protobuf": "proto",
    "thrift": "thrift",
    "graphql": "graphql gql",
    "cmake": "cmake",
    "makefile": "mk mak",
    "dockerfile": "dockerfile",
    "wgsl": "wgsl",
    "glsl": "glsl vert frag",
    "jinja": "j2 jinja jinja2",
    "json": "json jsonc json5 jsonl ndjson geojson ipynb webmanifest",
    "yaml": "yaml yml",
    "toml": "toml",
    "ini": "ini cfg conf properties env editorconfig",
    "xml": "xml xsd xsl xslt svg plist csproj vbproj fsproj props targets resx wsdl rss atom",
    "csv": "csv tsv psv",
    "lock": "lock",
    "diff": "diff patch",
    "markdown": "md markdown mdown mkd mdx qmd rmd",
    "rst": "rst rest",
    "asciidoc": "adoc asciidoc",
    "org": "org",
    "latex": "tex sty cls bib",
    TEXT: "txt text log",
}

_NAMES = {
    "dockerfile": "dockerfile containerfile",
    "makefile": "makefile gnumakefile bsdmakefile",
    "cmake": "cmakelists.txt",
    "ruby": "gemfile rakefile vagrantfile podfile guardfile capfile brewfile fastfile",
    "groovy": "jenkinsfile",
    "python": "sconstruct sconscript wscript snakefile",
    "starlark": "build.bazel workspace.bazel tiltfile",
    "just": "justfile .justfile",
    "bash": ".bashrc .bash_profile .bash_aliases .profile .zshrc .zprofile pkgbuild",
    "vim": ".vimrc",
    "json": ".babelrc .eslintrc .prettierrc composer.lock pipfile.lock flake.lock",
    "toml": "pipfile",
    "ini": (
        ".env .gitconfig .gitmodules .npmrc .pylintrc .flake8 .coveragerc .editorconfig "
        ".gitattributes .gitignore .dockerignore"
    ),
    "lock": "yarn.lock go.sum",
    "go.mod": "go.mod",
    TEXT: "license licence copying authors notice readme changelog requirements.txt constraints.txt",  # noqa: E501
}

_DATA = frozenset({"json", "yaml", "toml", "ini", "xml", "csv", "lock", "diff", "go.mod"})
_DOCS = frozenset({TEXT, "markdown", "rst", "asciidoc", "org", "latex"})

_BY_EXTENSION = {
    extension: language
    for language, extensions in _EXTENSIONS.items()
    for extension in extensions.split()
}
_BY_NAME = {name: language for language, names in _NAMES.items() for name in names.split()}

_INTERPRETERS = {
    "python": "python",
    "pypy": "python",
    "sh": "bash",
    "bash": "bash",
    "dash": "bash",
    "zsh": "bash",
    "ksh": "bash",
    "node": "javascript",
    "nodejs": "javascript",
    "deno": "typescript",
    "bun": "typescript",
    "ruby": "ruby",
    "perl": "perl",
    "php": "php",
    "lua": "lua",
    "luajit": "lua",
    "rscript": "r",
    "julia": "julia",
    "awk": "awk",
    "gawk": "awk",
    "fish": "fish",
    "pwsh": "powershell",
    "tclsh": "tcl",
    "scala": "scala",
    "kotlin": "kotlin",
    "swift": "swift",
    "groovy": "groovy",
    "elixir": "elixir",
    "make": "makefile",
}

# Names of module and function, so that importing this package imports no grammar.
GRAMMARS: dict[str, tuple[str, str]] = {
    "python": ("tree_sitter_python", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "java": ("tree_sitter_java", "language"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "csharp": ("tree_sitter_c_sharp", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "bash": ("tree_sitter_bash", "language"),
    "swift": ("tree_sitter_swift", "language"),
    "kotlin": ("tree_sitter_kotlin", "language"),
    "scala": ("tree_sitter_scala", "language"),
    "lua": ("tree_sitter_lua", "language"),
    "sql": ("tree_sitter_sql", "language"),
    "html": ("tree_sitter_html", "language"),
    "css": ("tree_sitter_css", "language"),
}

# The program is the first word behind `env` that is neither option nor setting, as in
# "#!/usr/bin/env -S VAR=1 python3 -u".
_SHEBANG = re.compile(
    r"\ufeff?#![^\S\n]*(?:(?:\S*/)?env[^\S\n]+(?:(?:-\S*+|[^\s=]*+=\S*+)[^\S\n]+)*+(?![^\s=]*+=))?(?:\S*/)?(?P<program>\S+)"
)
_CPP_HEADER = re.compile(
    r"^[^\S\n]*(?:class\s+\w+[^;\n]*[{:]|namespace\b[\w:\s]*\{|template\s*<|using\s+(?:namespace\b|\w+\s*=)|(?:public|private|protected):|#include\s*<\w+>)|\bstd::",
    re.MULTILINE,
)
_OBJECTIVE_C = re.compile(r"^\s*(?:@interface|@implementation|@protocol|#import)\b", re.MULTILINE)
_HEAD = 8192  # enough to see past a licence; the caller may hand in the whole file


def language_of(path: str, head: str = "") -> str:
    """Return the language by file name, then extension, then the first line of `head`.

    The language is "text" if none of them decides.
    """
    name = path.replace("\\", "/").rsplit("/", 1)[-1].lower()
    head = head[:_HEAD]
    if name in _BY_NAME:
        return _BY_NAME[name]
    _, dot, extension = name.rpartition(".")
    if dot and extension in _BY_EXTENSION:
        if extension == "h" and _OBJECTIVE_C.search(head):
            return "objectivec"
        if extension == "h" and _CPP_HEADER.search(head):
            return "cpp"
        return _BY_EXTENSION[extension]
    first = name.partition(".")[0]
    if first in {"dockerfile", "containerfile", "makefile"}:  # Dockerfile.dev, Makefile.am
        return _BY_NAME[first]
    return _read_shebang(head) or TEXT


def kind_of(language: str) -> Kind:
    """Return the kind of text, by which it is cut and ranked. An unknown language is prose."""
    if language in _DATA:
        return Kind.DATA
    if language in _DOCS or language not in _LANGUAGES:
        return Kind.DOCS
    return Kind.CODE


def _read_shebang(head: str) -> str:
    found = _SHEBANG.match(head)
    program = found["program"].lower() if found else ""
    return _INTERPRETERS.get(program.rstrip("0123456789."), "")  # without the version


_LANGUAGES = frozenset({*_EXTENSIONS, *_NAMES, *_INTERPRETERS.values()})
