"""Libraries that replace those of CUDA, so that a CUDA build of torch runs on a CPU without 4 GB of NVIDIA's packages.

Every function of these libraries returns an error, so torch reports no GPU. They are linked from the
list of the symbols that torch's own libraries need.
"""

import re
import subprocess
from collections import defaultdict
from pathlib import Path

PROVIDED = re.compile(r"lib(cu|nv|nccl)\w*\.so")
"""The names of the libraries of CUDA."""
NO_DEVICE = 100
"""`cudaErrorNoDevice`, which every function returns."""
STRINGS = re.compile(r"String|Name$")
"""Functions with these names return a text instead of a number."""


def add(torch_libraries: Path) -> list[str]:
    """Write the libraries into the folder of torch's libraries. Return their names."""
    libraries = sorted(torch_libraries.glob("*.so*"))
    needed = {name for library in libraries for name in _needed(library)}
    absent = sorted(name for name in needed if PROVIDED.match(name) and not (torch_libraries / name).exists())
    versioned, unversioned = defaultdict(set), set()
    defined = {symbol for library in libraries for symbol, _ in _symbols(library, "--defined-only")}
    for library in libraries:
        for symbol, version in _symbols(library, "--undefined-only"):
            if version:
                versioned[version].add(symbol)
            elif symbol not in defined:
                unversioned.add(symbol)
    versions = {name: _versions(libraries, name) for name in absent}
    for name in absent:
        symbols = {version: versioned[version] for version in versions[name]}
        # A symbol without a version can come from any library. The C library has some, which take precedence.
        _link(torch_libraries / name, symbols, unversioned if name == absent[0] else set())
    return absent


def _link(path: Path, symbols: dict[str, set[str]], unversioned: set[str]) -> None:
    """Link one library."""
    names = set().union(*symbols.values(), unversioned)
    lines = [f".globl {name}\n.weak {name}\n.type {name},@function\n{name}:" for name in sorted(names)]
    texts = [name for name in sorted(names) if STRINGS.search(name)]
    numbers = "\n".join(line for line, name in zip(lines, sorted(names), strict=True) if name not in texts)
    pointers = "\n".join(line for line, name in zip(lines, sorted(names), strict=True) if name in texts)
    source = f"""
    .section .note.GNU-stack,"",@progbits
    .data
    .balign 4096
    .fill 65536
    .text
    {numbers}
    movl ${NO_DEVICE}, %eax
    ret
    {pointers}
    leaq text(%rip), %rax
    ret
    .section .rodata
    text: .asciz "no CUDA"
    """
    assembly, script = path.with_suffix(".s"), path.with_suffix(".map")
    assembly.write_text(source, "utf-8")
    script.write_text("".join(f"{v} {{ {' '.join(f'{s};' for s in sorted(n))} }};\n" for v, n in symbols.items() if n))
    has_versions = [f"-Wl,--version-script={script}"] if script.read_text() else []
    command = ["gcc", "-shared", "-nostdlib", "-o", str(path), str(assembly), f"-Wl,-soname,{path.name}", *has_versions]
    subprocess.run(command, check=True)
    assembly.unlink()
    script.unlink()


def _needed(library: Path) -> list[str]:
    """The names of the libraries that a library is linked with."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", _output("readelf", "-dW", library))


def _symbols(library: Path, which: str) -> list[tuple[str, str]]:
    """The symbols of a library, each with its version or an empty string."""
    rows = [line.split()[-1] for line in _output("nm", "-D", which, library).splitlines() if line.strip()]
    return [(name, version) for name, _, version in (row.replace("@@", "@").partition("@") for row in rows)]


def _versions(libraries: list[Path], name: str) -> set[str]:
    """The versions of symbols that the libraries need from the library `name`."""
    versions = set[str]()
    for library in libraries:
        for block in re.split(r"\n(?=\s+(?:0x)?[0-9a-f]+: Version: )", _output("readelf", "-VW", library)):
            if f"File: {name} " in block:
                versions |= set(re.findall(r"Name: (\S+)", block))
    return versions


def _output(*command: object) -> str:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
