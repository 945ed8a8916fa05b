"""A program that multiplies tile registers without setting their sizes. The operating system ends its process."""

import ctypes

import llvmlite.binding as llvm

MULTIPLY = """
declare void @llvm.x86.tdpbf16ps(i8, i8, i8)
define void @f() {
  call void @llvm.x86.tdpbf16ps(i8 0, i8 4, i8 6)
  ret void
}
"""

if __name__ == "__main__":
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu="sapphirerapids")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(MULTIPLY), machine)
    engine.finalize_object()
    ctypes.CFUNCTYPE(None)(engine.get_function_address("f"))()
