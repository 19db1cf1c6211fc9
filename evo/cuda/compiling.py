"""Compile plain Python for a GPU without one: to PTX by Numba and libNVVM, the intermediate code of drivers.

Bits: libNVVM fuses a * b + c by default, so `EXACT` has all four options. Then every float operation
of PTX is one IEEE 754 operation, rounded to nearest, with subnormal numbers: mul.rn, add.rn, div.rn, sqrt.rn.
`forbidden_in` proves it for a program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numba_cuda  # of the extra `cuda`; without it, this module cannot be imported
import numpy as np
from llvmlite import ir
from numba import cuda, types
from numba.core.errors import NumbaError
from numba.cuda import ufuncs
from numba.cuda.compiler import compile_cuda, kernel_fixup
from numba.cuda.dispatcher import CUDADispatcher
from numba.cuda.extending import intrinsic
from numba.cuda.mathimpl import get_unary_impl_for_fn_and_ty
from numba.cuda.np import ufunc_db

from evo.compiled import cache as kernel_cache
from evo.compiled import views
from evo.cuda import plain
from evo.cuda.launch import Source, signature_of
from evo.errors import ConfigurationError
from evo.games.faults import inexact_in, powers_in
from evo.plugins import mistakes

EXACT = {"opt": 3, "fma": False, "ftz": False, "prec_div": True, "prec_sqrt": True}
SOURCES = tuple(kernel_cache.digest(path) for path in sorted(Path(__file__).parent.glob("*.py")))
OLDEST = (7, 5)  # compute capability of PTX, which drivers compile for this and every newer GPU
# Newer drivers read older PTX, not the other way round; 8.1 allows 32 KB of parameters. That of libNVVM 13.5 is 9.5.
PTX_VERSION = "8.1"
# Anything fused, flushed or approximate; and calls, since a libdevice function may be approximate.
FORBIDDEN = re.compile(r"\b(fma\.\S+|mad\.\S*f(32|64)\S*|\S*\.ftz\S*|\S*\.approx\S*|\S*\.full\S*|call\S*)\b")
KNOWN = (
    "floor", "ceil", "trunc", "absolute", "isfinite", "isnan", "isinf", "minimum", "maximum", "fmin", "fmax", "sign",
    "negative", "square",
)  # fmt: skip


def _complete_numpy() -> None:
    """Teach numba-cuda the exact functions of NumPy that it lacks in device code; those of libm stay missing."""
    ufunc_db._lazy_init_db()
    known, all_of_cpu = ufuncs.ufunc_db(), ufunc_db._ufunc_db
    for name in KNOWN:
        known.setdefault(getattr(np, name), all_of_cpu[getattr(np, name)])

    def sqrt(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return get_unary_impl_for_fn_and_ty(math.sqrt, signature.args[0])(context, builder, signature, arguments)

    def rint(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = arguments[0]
        name = "__nv_rint" if value.type == ir.DoubleType() else "__nv_rintf"  # cvt.rni: exact, ties to even
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(value.type, [value.type]), name
        )
        return builder.call(function, [value])

    known[np.sqrt] = {"f->f": sqrt, "d->d": sqrt}
    known[np.rint] = {"f->f": rint, "d->d": rint}


_complete_numpy()


class DeviceFunction(CUDADispatcher):  # type: ignore[misc]
    """A device function; numba-cuda's own asks a driver for the kind of GPU before it compiles one."""

    cc = OLDEST

    def __init__(self, function: Callable[..., Any]) -> None:
        how = {"device": True, "debug": False, "lineinfo": False, "opt": True, "fastmath": False, "forceinline": True}
        super().__init__(function, targetoptions=how)

    def compile_device(self, args: Any, return_type: Any = None) -> Any:
        """Compile the function for arguments of these types."""
        if args not in self.overloads:
            with self._compiling_counter:
                made = compile_cuda(
                    self.py_func, return_type, args, forceinline=True, nvvm_options=dict(EXACT), cc=self.cc
                )
                self.overloads[args] = made
                made.target_context.insert_user_function(made.entry_point, made.fndesc, [made.library])
        return self.overloads[args]


def ptx_of(kernel: Callable[..., Any], signature: tuple[Any, ...]) -> str:
    """Return the PTX of a kernel in plain Python, whose one entry has a parameter for each word of its arguments."""
    compiled = compile_cuda(kernel, types.void, signature, nvvm_options=dict(EXACT), cc=OLDEST)
    library, name = compiled.library, compiled.fndesc.llvm_func_name
    library._entry_name = name
    kernel_fixup(library.get_function(name), False)
    return re.sub(r"^\.version \S+", f".version {PTX_VERSION}", library.get_asm_str(cc=OLDEST), count=1, flags=re.M)


def forbidden_in(ptx: str) -> list[str]:
    """Return the instructions that could change a bit; empty: every float operation is IEEE 754, to nearest."""
    lines = [line.split("//")[0] for line in ptx.splitlines()]
    code = [line for line in lines if not line.lstrip().startswith(".")]
    return [match.group(0) for line in code if (match := FORBIDDEN.search(line))]


# Loads and stores without the test for negative indices, and four neighbours at once.


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any, target: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), target.as_pointer(data.type.addrspace))


@intrinsic  # type: ignore[untyped-decorator]
def load1(typing: Any, array: Any, at: Any) -> Any:
    """Return array[at]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(
            _pointer(context, builder, array, arguments[0], arguments[1], context.get_value_type(array.dtype))
        )
        value.align = array.dtype.bitwidth // 8
        return value

    return array.dtype(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def load4(typing: Any, array: Any, at: Any) -> Any:
    """Return array[at : at + 4] by one load."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), 4)
        value = builder.load(_pointer(context, builder, array, arguments[0], arguments[1], vector))
        value.align = 16
        parts = [builder.extract_element(value, ir.Constant(ir.IntType(32), k)) for k in range(4)]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(types.float32, 4)(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def store1(typing: Any, array: Any, at: Any, value: Any) -> Any:
    """Set array[at]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = _pointer(context, builder, array, arguments[0], arguments[1], context.get_value_type(array.dtype))
        builder.store(arguments[2], target).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.none(array, types.intp, array.dtype), generate


@intrinsic  # type: ignore[untyped-decorator]
def store4(typing: Any, array: Any, at: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Set array[at : at + 4] by one store."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), 4)
        values = ir.Constant(vector, ir.Undefined)
        for k, value in enumerate(arguments[2:]):
            values = builder.insert_element(values, value, ir.Constant(ir.IntType(32), k))
        builder.store(values, _pointer(context, builder, array, arguments[0], arguments[1], vector)).align = 16
        return context.get_dummy_value()

    return types.none(array, types.intp, a, b, c, d), generate


@intrinsic  # type: ignore[untyped-decorator]
def quotient(typing: Any, a: Any, b: Any) -> Any:
    """Return a // b by a division of 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half, whole = ir.IntType(32), ir.IntType(64)
        return builder.zext(builder.udiv(*(builder.trunc(number, half) for number in arguments)), whole)

    return types.int64(types.int64, types.int64), generate


def _add_at(array, at, value):  # type: ignore[no-untyped-def]
    return cuda.atomic.add(array, at, value)


def _barrier():  # type: ignore[no-untyped-def]
    cuda.syncthreads()


def _square_root(x):  # type: ignore[no-untyped-def]
    return math.sqrt(x)


def _is_finite(x):  # type: ignore[no-untyped-def]
    return math.isfinite(x)


TWINS = {
    plain.load1: load1, plain.load4: load4, plain.store1: store1, plain.store4: store4, plain.shaped: views.shaped,
    plain.quotient: quotient,
    plain.add_at: DeviceFunction(_add_at), plain.barrier: DeviceFunction(_barrier),
    plain.square_root: DeviceFunction(_square_root), plain.is_finite: DeviceFunction(_is_finite),
}  # fmt: skip


def exact_ptx(source: Source, arguments: Sequence[Any]) -> str:
    """Return the PTX of a kernel for such arguments; nothing is compiled again where nothing has changed.

    ConfigurationError where it cannot be exact, or not compiled.
    """
    signature = signature_of(arguments)
    parts = (*SOURCES, numba_cuda.__version__, *source.parts, OLDEST, PTX_VERSION)
    name = f"{source.kernel.__name__}.ptx"
    return kernel_cache.kept(name, signature, parts, lambda: _compiled(source, signature).encode()).decode()


def _compiled(source: Source, signature: tuple[Any, ...]) -> str:
    what = f"{source.option}: {source.title}"
    if found := inexact_in(source.functions):
        raise ConfigurationError(f"{what} uses {found}, whose last bits differ on a GPU; evo.games has exact functions")
    try:
        ptx = ptx_of(source.of_device(DeviceFunction, TWINS), signature)
    except (NumbaError, ImportError, AttributeError, RuntimeError) as error:  # or it finds no library, or an old one
        raise ConfigurationError(f"{what} cannot be compiled for GPUs: {mistakes.compiling_line(error)}") from error
    if forbidden := forbidden_in(ptx):
        found = ", ".join(sorted({*forbidden})[:3])
        powers = powers_in(source.functions)
        at = f"; a power, in {powers}, has them where its exponent is no constant whole number" if powers else ""
        raise ConfigurationError(f"{what} would have other bits on a GPU, by {found}{at}")
    return ptx
