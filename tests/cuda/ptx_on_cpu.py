"""Run the PTX of a kernel on a CPU: every instruction as one statement of C, every thread of a block as a fiber.

This is a test, not a device: it executes the very program that a GPU's driver is given, so it shows that Numba and
libNVVM kept every float operation and its order. Left to trust is the driver's compiler, whose contract for mul.rn,
add.rn, div.rn and sqrt.rn without .ftz is IEEE 754. The C compiler is told not to fuse (-ffp-contract=off). Data races
show up as differences between two orders of threads (`reverse`).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.cuda.launch import Device, Source, words_of

TEMPLATE = Path(__file__).with_suffix(".c")
C_TYPES = {
    "s8": "int8_t", "u8": "uint8_t", "b8": "uint8_t", "s16": "int16_t", "u16": "uint16_t", "b16": "uint16_t",
    "s32": "int32_t", "u32": "uint32_t", "b32": "uint32_t", "s64": "int64_t", "u64": "uint64_t", "b64": "uint64_t",
    "f32": "float", "f64": "double", "pred": "uint8_t",
}  # fmt: skip
COMPARE = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
SPECIAL = {"%tid.x": "TID", "%ntid.x": "NT", "%ctaid.x": "BLOCK", "%nctaid.x": "BLOCKS"}
ROUNDED = {"rni": "nearbyint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
WIDE = {"u64": "unsigned __int128", "s64": "__int128", "u32": "uint64_t", "s32": "int64_t"}
FLAGS = (
    "-O1", "-w", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-U_FORTIFY_SOURCE",
)  # fmt: skip


def value(text: str, kind: str) -> str:
    """Return an operand of this type in C."""
    text = text.strip()
    if m := re.fullmatch(r"0[fF]([0-9A-Fa-f]{8})", text):
        return f"f32_of(0x{m[1]}u)"
    if m := re.fullmatch(r"0[dD]([0-9A-Fa-f]{16})", text):
        return f"f64_of(0x{m[1]}ull)"
    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        text = f"(int64_t){number}ll" if -(1 << 63) < number < 1 << 63 else f"0x{number & (1 << 64) - 1:x}ull"
        return f"({C_TYPES[kind]}){text}"
    if text in SPECIAL:
        return SPECIAL[text]
    if text.startswith("%"):
        register = text[1:]
        if kind[0] in "bu" and kind != "b8" and register.startswith("f"):  # bits of a float
            return f"of_f{'64' if register.startswith('fd') else '32'}({register})"
        return f"({C_TYPES[kind]}){register}" if kind[0] != "f" else register
    return f"(uint64_t){text}"


def place(text: str) -> str:
    """Return an address in C."""
    m = re.fullmatch(r"\[\s*([^\]+]+?)\s*(?:\+\s*(-?\d+))?\s*\]", text.strip())
    assert m, text
    return f"({value(m[1], 'u64')} + ({m[2] or 0}))"


def assign(target: str, expression: str) -> str:
    return f"{target.strip()[1:]} = {expression};"


class Instruction:
    """One instruction of PTX."""

    def __init__(self, text: str, parameters: dict[str, int]) -> None:
        self.text, self.guard, self.parameters = text, "", parameters
        if m := re.match(r"@(!?)%(p\d+)\s+", text):
            self.guard, text = f"if ({m[1]}{m[2]}) ", text[m.end() :]
        opcode, _, rest = re.sub(r"\s+", " ", text).partition(" ")
        self.name, *self.parts = opcode.strip().split(".")
        self.rest = rest.strip()
        self.operands = [one.strip() for one in re.split(r",\s*(?![^{]*\})", rest)] if self.rest else []
        self.kinds = [part for part in self.parts if part in C_TYPES]
        self.kind = self.kinds[-1] if self.kinds else ""
        self.bits = int(self.kind[1:]) if self.kind and self.kind != "pred" else 0

    def v(self, number: int, kind: str = "") -> str:
        return value(self.operands[number], kind or self.kind)

    def into(self, expression: str) -> str:
        target = self.operands[0]
        if self.kind[0] == "b" and target.startswith("%f"):
            expression = f"f{'64' if target.startswith('%fd') else '32'}_of({expression})"
        return self.guard + assign(target, expression)

    def in_c(self) -> str:
        """Return the instruction as a statement."""
        name, kind, bits, v = self.name, self.kind, self.bits, self.v
        if name == "bra":
            return f"{self.guard}goto {self.rest.replace('$', '')};"
        if name == "ret":
            return self.guard + "return;"
        if name in ("bar", "barrier"):
            return self.guard + "barrier();"
        if hasattr(self, f"_{name}"):
            statement: str = getattr(self, f"_{name}")()
            return statement
        if name == "selp":
            return self.into(f"{self.operands[3][1:]} ? {v(1)} : {v(2)}")
        if name in ("and", "or", "xor"):
            return self.into(f"{v(1)} {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[name]} {v(2)}")
        if name == "not":
            return self.into(f"!{v(1)}" if kind == "pred" else f"~{v(1)}")
        if name == "shl":
            return self.into(f"SHIFT({v(1)}, {v(2, 'u32')}, {bits}, <<)")
        if name == "shr":
            n = v(2, "u32")
            return self.into(f"SAR({v(1)}, {n}, {bits})" if kind[0] == "s" else f"SHIFT({v(1)}, {n}, {bits}, >>)")
        if name == "rcp" and "rn" in self.parts:  # rounded to nearest, as 1 / x is
            return self.into(f"1.0{'f' if kind == 'f32' else ''} / {v(1)}")
        if name == "sqrt" and "rn" in self.parts:
            return self.into(f"{'sqrtf' if kind == 'f32' else 'sqrt'}({v(1)})")
        if name in ("min", "max"):
            if kind[0] == "f":
                return self.into(f"f{name}{'f' if kind == 'f32' else ''}({v(1)}, {v(2)})")
            return self.into(f"({v(1)} {'<' if name == 'min' else '>'} {v(2)}) ? {v(1)} : {v(2)}")
        if name == "copysign":  # of the first operand
            return self.into(f"copysign{'f' if kind == 'f32' else ''}({v(2)}, {v(1)})")
        if name == "neg":
            return self.into(f"-{v(1)}")
        if name == "abs":
            return self.into(
                f"fabs({v(1)})" if kind == "f64" else f"fabsf({v(1)})" if kind == "f32" else f"llabs({v(1)})"
            )
        if name == "bfi":
            return self.into(f"bfi{bits}({v(1)}, {v(2)}, {v(3, 'u32')}, {v(4, 'u32')})")
        if name == "prmt":
            return self.into(f"prmt({v(1)}, {v(2)}, {v(3)})")
        if name == "shf":  # of the 64 bits of two words
            how = "<< n >> 32" if "l" in self.parts else ">> n"
            n = f"{v(3, 'u32')} & 31" if "wrap" in self.parts else f"{v(3, 'u32')} > 32 ? 32 : {v(3, 'u32')}"
            both = assign(self.operands[0], f"((uint64_t){v(2, 'u32')} << 32 | {v(1, 'u32')}) {how}")
            return f"{self.guard}{{ uint32_t n = {n}; {both} }}"
        if name == "popc":
            return self.guard + assign(self.operands[0], f"__builtin_popcountll({v(1)})")
        raise NotImplementedError(self.text)

    def _mov(self) -> str:
        half, kind = self.bits // 2, C_TYPES[self.kind]
        if self.operands[0].startswith("{"):
            low, high = self.operands[0].strip("{} ").split(",")
            of_half = C_TYPES[f"b{half}"]
            parts = assign(low, f"({of_half}){self.v(1)}"), assign(high, f"({of_half})({self.v(1)} >> {half})")
            return f"{self.guard}{{ {' '.join(parts)} }}"
        if self.operands[1].startswith("{"):
            low, high = self.operands[1].strip("{} ").split(",")
            return self.into(f"({kind}){value(low, f'b{half}')} | ({kind}){value(high, f'b{half}')} << {half}")
        return self.into(self.v(1))

    def _cvta(self) -> str:
        return self.into(self.v(1))

    def _ld(self) -> str:
        targets, kind, bits = self.operands[0].strip("{}").split(","), self.kind, self.bits
        if "param" in self.parts:
            m = re.fullmatch(r"\[([\w$]+)\]", self.operands[1])
            assert m
            word = f"P[{self.parameters[m[1]]}]"
            return self.guard + assign(self.operands[0], f"f64_of({word})" if kind == "f64" else word)
        address = place(self.operands[1])
        typed = C_TYPES[kind if kind[0] != "b" or "%f" not in self.operands[0] else f"f{bits}"]  # bits are kept
        loads = [assign(one, f"*({typed}*)({address} + {k * bits // 8})") for k, one in enumerate(targets)]
        return f"{self.guard}{{ {' '.join(loads)} }}"

    def _st(self) -> str:
        sources, address = self.operands[1].strip("{}").split(","), place(self.operands[0])
        typed, size = C_TYPES[self.kind], self.bits // 8
        stores = [f"*({typed}*)({address} + {k * size}) = {value(s, self.kind)};" for k, s in enumerate(sources)]
        return f"{self.guard}{{ {' '.join(stores)} }}"

    def _atom(self) -> str:
        assert "add" in self.parts
        kind, before = C_TYPES[self.kind], assign(self.operands[0], "*a")
        return f"{self.guard}{{ {kind} *a = ({kind}*){place(self.operands[1])}; {before} *a += {self.v(2)}; }}"

    def _setp(self) -> str:
        a, b, compare = self.v(1), self.v(2), self.parts[0]
        ordered = f"({a} == {a} && {b} == {b})"
        if compare in ("nan", "num"):
            expression = ordered if compare == "num" else f"!{ordered}"
        elif self.kind[0] == "f" and compare.endswith("u") and compare[:-1] in COMPARE:
            expression = f"!{ordered} || ({a} {COMPARE[compare[:-1]]} {b})"
        elif self.kind[0] == "f" and compare == "ne":
            expression = f"{ordered} && ({a} != {b})"
        else:
            expression = f"({a} {COMPARE[compare]} {b})"
        return self.guard + assign(self.operands[0], expression)

    def _add(self) -> str:
        sign, unsigned = "+" if self.name == "add" else "-", C_TYPES[f"u{self.bits}"]
        if self.kind[0] == "f":
            return self.into(f"{self.v(1)} {sign} {self.v(2)}")
        return self.into(f"({unsigned}){self.v(1)} {sign} ({unsigned}){self.v(2)}")

    _sub = _add

    def _mul(self) -> str:
        kind, bits, parts = self.kind, self.bits, self.parts
        if kind[0] == "f":
            assert self.name == "mul", self.text  # mad would be fused
            return self.into(f"{self.v(1)} * {self.v(2)}")
        of_sum = f"{kind[0]}{2 * bits}" if "wide" in parts else kind
        more = f" + {self.v(3, of_sum)}" if self.name == "mad" else ""
        if "wide" in parts:
            typed = C_TYPES[of_sum]
            return self.guard + assign(self.operands[0], f"({typed}){self.v(1)} * ({typed}){self.v(2)}{more}")
        if "hi" in parts:
            return self.into(f"(({WIDE[kind]}){self.v(1)} * ({WIDE[kind]}){self.v(2)}) >> {bits}{more}")
        unsigned = C_TYPES[f"u{bits}"]
        return self.into(f"({unsigned}){self.v(1)} * ({unsigned}){self.v(2)}{more}")

    _mad = _mul

    def _div(self) -> str:
        assert self.kind[0] != "f" or "rn" in self.parts, self.text
        return self.into(f"{self.v(1)} {'/' if self.name == 'div' else '%'} {self.v(2)}")

    _rem = _div

    def _cvt(self) -> str:
        to, source = self.kinds
        x, rounding = value(self.operands[1], source), [part for part in self.parts if part in ROUNDED]
        if rounding and source[0] == "f":
            x = f"{ROUNDED[rounding[0]]}({x})"
            x = f"to_{to}({x})" if to[0] in "su" else x
        return self.guard + assign(self.operands[0], f"({C_TYPES[to]}){x}")


def c_of(ptx: str) -> str:
    """Return a C program that does what the one entry of `ptx` does."""
    before, _, entry = ptx.partition(".entry")
    shared = re.findall(r"\.(shared|global)\s+\.align (\d+) \.\w+ ([\w$]+)\[(\d+)\]", before)
    assert all(kind == "shared" for kind, *_ in shared), "constant arrays"
    signature, _, code = entry.partition("{")
    names = re.findall(r"\.param \.\w+ ([\w$]+)", signature)
    parameters, registers, out = {name: number for number, name in enumerate(names)}, list[str](), list[str]()
    for line in re.sub(r"//[^\n]*", "", code).splitlines():
        text = line.strip()
        if not text or text in ("{", "}") or text.startswith((".loc", ".pragma")):
            continue
        if text.startswith(".reg"):
            for group in text[:-1].split(","):
                if m := re.search(r"%(\w+)<(\d+)>", group):
                    (kind,) = re.findall(r"\.reg \.(\w+)", text)
                    registers.append(f"{C_TYPES[kind]} {', '.join(f'{m[1]}{n} = 0' for n in range(int(m[2])))};")
                else:
                    registers.append(f"uint64_t {text.split('%')[1].rstrip(';')} = 0;")
        elif m := re.match(r"\.local\s+\.align (\d+) \.b8\s+([\w$]+)\[(\d+)\]", text):
            registers.append(f"_Alignas({m[1]}) char {m[2]}[{m[3]}];")
        elif m := re.fullmatch(r"([\w$]+):", text):
            out.append(f"{m[1].replace('$', '')}: ;")
        else:
            out.append("  " + Instruction(text.rstrip(";"), parameters).in_c())
    memory = [f"static _Alignas({align}) char {name}[{size}];" for _, align, name, size in shared]
    registers = list(dict.fromkeys(registers))  # two blocks may have one of the same name
    body = "\n".join([*memory, "static void body(void) {", *registers, *out, "}"])
    return TEMPLATE.read_text().replace("// BODY", body)


def compiled(ptx: str) -> Any:
    """Return the kernel of a program as a function of this process: blocks, threads, reverse, parameters."""
    program = c_of(ptx)
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or tempfile.gettempdir()) / f"ptx-on-cpu-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    library = folder / f"{hashlib.sha256(program.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        written = folder / f"{library.stem}-{os.getpid()}"
        written.with_suffix(".c").write_text(program)
        subprocess.run(["gcc", *FLAGS, f"{written}.c", "-o", f"{written}.so", "-lm"], check=True)
        written.with_suffix(".so").rename(library)
    return ctypes.CDLL(str(library)).launch


class PtxOnCpu(Device):
    """Compiles kernels as for a GPU, and runs their PTX on this processor."""

    name, golden = "PTX on a CPU", (3, 4)

    def __init__(self, reverse: bool = False) -> None:
        self.reverse = reverse  # the order of threads

    def program(self, source: Source, arguments: Sequence[Any]) -> Any:
        """Return a kernel, compiled by the C compiler."""
        from evo.cuda.compiling import exact_ptx

        return compiled(exact_ptx(source, arguments))

    def blocks(self, program: Any, threads: int) -> int:
        """Return two, so that a block plays several candidates."""
        return 2

    def run(
        self,
        program: Any,
        arguments: Sequence[Any],
        blocks: int,
        threads: int,
        results: Sequence[NDArray[Any]],
        whole: bool = False,
    ) -> None:
        """Run a kernel in place; results begin with any values where they are not copied to a device."""
        for array in results if whole else ():
            array.reshape(-1).view(np.uint8).fill(171)
        records = {id(one): np.array([one], one.dtype) for one in arguments if isinstance(one, np.void)}

        def address(array: Any) -> int:
            return int(records.get(id(array), array).ctypes.data)

        words = [word for argument in arguments for word in words_of(argument, address)]
        packed = [np.float64(word).view(np.uint64) if isinstance(word, float) else word % (1 << 64) for word in words]
        values = np.array(packed, np.uint64)
        program(blocks, threads, int(self.reverse), values.ctypes.data_as(ctypes.c_void_p))
