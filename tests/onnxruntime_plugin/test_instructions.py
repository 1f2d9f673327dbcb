"""The library's instructions, as LLVM's disassembler reads them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from partita.onnxruntime_plugin.library import PROCESSORS

ARGUMENTS = {
    "jump": (0x1000, 0x1020, -0x40), "call": (0x1000, 0x1020, -0x40, -0x80, -0xC0), "fail": (0x203, 0x1008), "sleep_or": (-0x40,),
    "interrupt": (0x1010,), "text_at": (0x58,), "number": (24,),
}
"""Distances from the first instruction of a function, an offset, and a number."""

X86_64 = {
    "jump": "cmp dword ptr [rip + 4089], 0; je -77; jmp qword ptr [rip + 4109]",
    "call": "cmp dword ptr [rip + 4089], 0; je -77; sub rsp, 40; mov rax, qword ptr [rsp + 48]; mov qword ptr [rsp], rax; "
            "lea rax, [rsp + 16]; mov qword ptr [rsp + 8], rax; mov qword ptr [rax], -1; call qword ptr [rip + 4079]; "
            "mov rax, qword ptr [rsp + 16]; add rsp, 40; cmp rax, -1; je -196; test al, 1; jne -268; ret",
    "fail": "mov edi, 1; lea rsi, [rip + 503]; jmp qword ptr [rip + 4086]",
    "sleep_or": "mov eax, 39; syscall; mov r8d, eax; mov eax, 186; syscall; cmp eax, r8d; je -90; mov eax, 34; syscall; jmp -9",
    "interrupt": "push rax; call qword ptr [rip + 4105]; pop rax; and rax, -2; ret",
    "text_at": "mov rax, qword ptr [rdi + 88]; ret",
    "number": "mov eax, 24; ret",
    "null_second": "mov qword ptr [rsi], 0; xor eax, eax; ret",
    "first_in_third": "mov qword ptr [rdx], rdi; xor eax, eax; ret",
}

AARCH64 = {
    "jump": "ldr w16, #4096; cbz w16, #-68; ldr x16, #4120; br x16",
    "call": "ldr w16, #4096; cbz w16, #-68; stp x29, x30, [sp, #-32]!; mov x16, #-1; str x16, [sp, #16]; add x7, sp, #16; "
            "ldr x16, #4104; blr x16; ldr x0, [sp, #16]; ldp x29, x30, [sp], #32; cmn x0, #1; "
            "b.eq #-172; tbnz w0, #0, #-240; ret",
    "fail": "mov w0, #1; adr x1, #511; ldr x16, #4096; br x16",
    "sleep_or": "mov x8, #172; svc #0; mov w9, w0; mov x8, #178; svc #0; cmp w0, w9; b.eq #-88; mov x0, xzr; mov x1, xzr; "
                "mov x2, xzr; mov x3, xzr; mov x4, xzr; mov x8, #73; svc #0; b #-28",
    "interrupt": "stp x0, x30, [sp, #-16]!; ldr x16, #4108; blr x16; ldp x0, x30, [sp], #16; "
                 "and x0, x0, #0xfffffffffffffffe; ret",
    "text_at": "ldr x0, [x0, #88]; ret",
    "number": "mov w0, #24; ret",
    "null_second": "str xzr, [x1]; mov w0, #0; ret",
    "first_in_third": "str x0, [x2]; mov x0, #0; ret",
}


@pytest.mark.parametrize(("processor", "listings"), [("x86_64", X86_64), ("aarch64", AARCH64)])
def test_functions_have_these_instructions(processor: str, listings: dict[str, str]) -> None:
    """A distance is from the end of an instruction on x86_64, and from its beginning on aarch64."""
    disassembler = shutil.which("llvm-mc")
    if disassembler is None:
        pytest.skip("needs llvm-mc")
    command = [disassembler, "--disassemble", f"--triple={processor}-linux-gnu"]
    command += ["--output-asm-variant=1"] if processor == "x86_64" else []
    for name, expected in listings.items():
        part = getattr(PROCESSORS[processor], name)
        code = part(*ARGUMENTS[name]) if callable(part) else part
        done = subprocess.run(command, input=" ".join(map(hex, code)), capture_output=True, text=True, check=True)
        lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.startswith("\t") and ".text" not in line]
        assert "; ".join(lines) == expected, name
