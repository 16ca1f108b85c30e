"""Classification of files and folders by their names: dependencies, caches, binaries, generated."""

from __future__ import annotations


def split_words(text: str) -> frozenset[str]:
    """Return the words of a text. Long lists are easier to read and to change in this form."""
    return frozenset(text.split())


# Folders that are left out at any depth; the value is (reason, detail) of the skip.
FOLDERS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (".git", ".hg", ".svn", ".jj", ".bzr", "CVS", "_darcs", ".sl"),
        ("ignored", "version control"),
    ),
    **dict.fromkeys(
        (
            "__pycache__",
            ".mypy_cache",
            ".ruff_cache",
            ".pytest_cache",
            ".hypothesis",
            ".tox",
            ".nox",
            ".gradle",
            ".terraform",
            ".ipynb_checkpoints",
        ),
        ("ignored", "cache"),
    ),
    **dict.fromkeys(
        (
            ".parcel-cache",
            ".turbo",
            ".next",
            ".nuxt",
            ".svelte-kit",
            ".nyc_output",
            ".eggs",
            ".pytype",
        ),
        ("ignored", "cache"),
    ),
    **dict.fromkeys(
        (
            "node_modules",
            "bower_components",
            "jspm_packages",
            ".venv",
            "site-packages",
            ".yarn",
            ".pnpm-store",
        ),
        ("vendored", "dependencies"),
    ),
    ".unspool": ("ignored", "unspool's own files"),
}
VERSION_CONTROL = frozenset(
    name for name, (_, detail) in FOLDERS.items() if detail == "version control"
)

EXTRACTED = frozenset({".pdf", ".docx"})  # binary, but text can be taken out of them

_BINARY = frozenset(
    "." + extension
    for group in (
        # images; svg is text in form only
        (
            "png jpg jpeg jpe gif bmp ico icns tif tiff webp avif heic heif psd xcf eps svg svgz "
            "cr2 "
            "nef dds tga exr hdr ktx"
        ),
        # sound and film; not ts, which is TypeScript far more often
        (
            "mp3 mp4 m4a m4v mov avi mkv webm wav flac ogg oga ogv opus aac wma wmv flv mpg mpeg "
            "mid "
            "midi aiff 3gp swf"
        ),
        # archives, packages, disk images
        (
            "zip gz tgz bz2 tbz xz txz 7z rar tar lz lz4 lzma zst br cab cpio jar war apk aab ipa "
            "whl egg gem nupkg crate deb rpm msi dmg iso img pkg"
        ),
        "vhd vhdx vmdk qcow2 squashfs",
        # fonts
        "ttf otf woff woff2 eot pfb pfm ttc",
        # compiled; not mo (Modelica), bc or exp (scripts): their content decides
        (
            "o a so dylib dll exe lib obj ko class pyc pyo pyd wasm beam hi pdb ilk node rlib "
            "rmeta "
            "dex gmo nib pak swiftmodule"
        ),
        # office formats without an extractor
        (
            "doc xls xlsx xlsm xlsb ppt pptx pps ppsx odt ods odp odg rtf pages numbers vsd vsdx "
            "mpp "
            "epub mobi azw azw3 djvu xps"
        ),
        # databases, matrices, models
        (
            "sqlite sqlite3 db db3 mdb accdb frm ibd myd myi ldb sst rdb mmdb dbf parquet feather "
            "arrow orc avro npy npz mat h5 hdf5 pkl pickle joblib"
        ),
        (
            "pth ckpt safetensors gguf onnx tflite pb tfrecord caffemodel mlmodel bin rds rda "
            "rdata "
            "sav dta grib shp"
        ),
        # sealed keys and certificates
        "p12 pfx jks keystore der gpg kdbx",
        # design, three dimensions, games
        (
            "blend fbx glb 3ds stl dwg dxf skp sketch fig indd unitypackage uasset umap pck rom "
            "nes "
            "gba"
        ),
        # traces
        "pcap pcapng dmp hprof jfr swp swo pack idx",
    )
    for extension in group.split()
)

_GENERATED_NAMES = split_words(
    "package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb "
    "poetry.lock uv.lock pdm.lock pipfile.lock pixi.lock "
    "cargo.lock go.sum go.work.sum gemfile.lock composer.lock podfile.lock cartfile.resolved "
    "package.resolved mix.lock pubspec.lock flake.lock "
    "conda-lock.yml packages.lock.json gradle.lockfile deno.lock .terraform.lock.hcl "
    "cachedir.tag .ds_store thumbs.db .coverage .eslintcache"
)
# the first reason whose ending matches counts
_ENDINGS = (
    (
        "minified",
        (
            ".min.js",
            ".min.mjs",
            ".min.cjs",
            ".min.css",
            ".min.html",
            "-min.js",
            "-min.css",
            ".bundle.js",
            ".chunk.js",
        ),
    ),
    (
        "generated",
        (
            ".map",
            ".snap",
            ".tsbuildinfo",
            "_pb2.py",
            "_pb2.pyi",
            "_pb2_grpc.py",
            ".pb.go",
            ".pb.cc",
            ".pb.h",
            ".pb.validate.go",
            ".pb.gw.go",
            ".pbobjc.h",
            ".pbobjc.m",
            ".g.dart",
            ".freezed.dart",
            ".designer.cs",
            ".g.cs",
            ".g.i.cs",
        ),
    ),
)


def get_extension(name: str) -> str:
    """Return the last suffix in lower case, with its dot; empty for `Makefile` and `.env`."""
    at = name.rfind(".")
    return name[at:].lower() if at > 0 else ""


def find_skip_reason(name: str) -> tuple[str, str] | None:
    """Return the (reason, detail) to leave out a file of this name, or None."""
    suffix = get_extension(name)
    if suffix in _BINARY:
        return "binary", f"{suffix} file"
    lower = name.lower()
    if lower in _GENERATED_NAMES:
        return "generated", "written by a tool"
    for reason, endings in _ENDINGS:
        if lower.endswith(endings):
            return reason, "by its name"
    return None
