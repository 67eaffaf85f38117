"""An emulated computer for exported programs, which the kernel of user-mode Linux cannot load (it has no BTF).

Its instructions are its clock (qemu's -icount), so runs are repeatable. Its kernel is one of the distribution; network, agent and
results are those of user-mode Linux (``ccenv.live.virtual.run``).
"""

from __future__ import annotations

import lzma
import re
import shutil
from pathlib import Path

from ccenv.agents import make_sender
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import CcenvError
from ccenv.engine.packet.spec import FlowSpec
from ccenv.live.export.bpf import USER, ExportError, compile_bpf, export_bpf
from ccenv.live.export.ever_delay import export_ever_delay, load_ever_delay
from ccenv.live.export.fourcp import export_fourcp, load_fourcp
from ccenv.live.export.window import KernelPolicy, export_window
from ccenv.live.programs import load_flow
from ccenv.live.requirements import OLDEST_KERNEL
from ccenv.live.scenario import LiveError, LiveScenario, kernel_cca
from ccenv.live.virtual.guest import Guest, compile_guest

QEMU = "qemu-system-x86_64"
INSTALL_QEMU = "apt install qemu-system-x86"
INSTALL_KERNEL = "apt install -t bookworm-backports linux-image-cloud-amd64 (6.12), or unpack it and give -s kernel=FOLDER"
INSTALL_LIBRARIES = "apt install gcc libc6-dev libbpf-dev"
ROOT = "/"
CPU_S, CPU_S_PER_MBIT = 120.0, 1.0  # limit of a run's CPU time: a constant, and per Mbit that the link could carry
MEMORY_MIB = 320
SHARED_BYTES = 8 << 20  # of shared.h, up to a power of two
_RELEASE = re.compile(r"vmlinuz-((\d+)\.(\d+)\.\S+)")
_COMMAND_LINE = (
    "console=ttyS0 quiet panic=-1 nokaslr norandmaps mitigations=off random.trust_cpu=off clocksource=tsc tsc=reliable reboot=t"
)
_MACHINE = (
    "-M q35,hpet=off -cpu max,-rdrand,-rdseed -accel tcg,thread=single -icount shift=0,sleep=off -nodefaults -no-user-config"
    " -display none -no-reboot -rtc base=2024-01-01,clock=vm -serial file:serial"
    " -chardev file,id=port,path=/dev/full -device isa-debugcon,iobase=0x402,chardev=port"
    f" -object memory-backend-file,id=shared,size={SHARED_BYTES},mem-path=shared,share=on"
    " -device ivshmem-plain,memdev=shared,bus=pcie.0,addr=0x10 -kernel kernel -initrd initrd"
)  # fmt: skip


def find_kernel(folder: Path) -> tuple[Path, Path]:
    """Return the newest kernel that can load programs of ``boot`` and its modules. Raises LiveError if there is none."""
    found = []
    for image in sorted(folder.glob("boot/vmlinuz-*")):
        match = _RELEASE.fullmatch(image.name)
        modules = folder / "lib/modules" / (match[1] if match else "") / "kernel"
        if match and (int(match[2]), int(match[3])) >= OLDEST_KERNEL and (modules / "drivers/net").is_dir():
            found.append(([int(digits) for digits in re.findall(r"\d+", match[1])], image, modules))
    if not found:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        raise LiveError(f"virtual: {folder} has no kernel of {oldest} or newer with its modules; {INSTALL_KERNEL}")
    return max(found)[1:]


def read_module(modules: Path, name: str) -> bytes | None:
    """Return a module, unpacked; None if the kernel has none of that name."""
    plain, packed = modules / name, modules / f"{name}.xz"
    if plain.exists():
        return plain.read_bytes()
    return lzma.decompress(packed.read_bytes()) if packed.exists() else None


def export_flow(index: int, flow: FlowSpec, scenario: LiveScenario) -> tuple[str, str, KernelPolicy | None]:
    """Return name and C of a flow's sender, and the policy that decides for it outside.

    Raises LiveError if it cannot be exported, or a process outside would choose; InputError for a policy that no kernel plays.
    """
    name = f"flow{index}"
    try:
        sender = make_sender(flow.sender)
        text = export_window(name) if isinstance(sender, PolicySender) else _export_program(name, flow, scenario)
    except CcenvError as error:
        raise LiveError(f"virtual: flow {index}: {error}; senders of the kernel are named kernel:NAME") from None
    return name, text, KernelPolicy(sender, scenario.mss_bytes) if isinstance(sender, PolicySender) else None


def _export_program(name: str, flow: FlowSpec, scenario: LiveScenario) -> str:
    rtt_s = flow.sender_rtt_s if flow.rtt_known else None
    if (fair := load_ever_delay(flow.sender)) is not None:
        return export_ever_delay(fair, name=name, rtt_s=rtt_s)
    if (fourcp := load_fourcp(flow.sender)) is not None:
        return export_fourcp(fourcp, name=name)
    program, chooser, _ = load_flow(flow, scenario)
    if chooser == USER:
        raise ExportError("no process chooses for a virtual kernel; set chooser: kernel")
    return export_bpf(program, name=name, rtt_s=rtt_s, jitter_s=flow.jitter_s, chooser=chooser)


def make_computer(scenario: LiveScenario, folder: str | None) -> Guest:
    """Return the computer of a run: its programs, its kernel's files, how it starts.

    Raises LiveError for a missing emulator, kernel, module or library; ExportError for a missing compiler.
    """
    exported = {i: export_flow(i, flow, scenario) for i, flow in enumerate(scenario.flows) if kernel_cca(flow.sender) is None}
    qemu = shutil.which(QEMU)
    if qemu is None:
        raise LiveError(f"virtual: exported programs need an emulated kernel, and there is no {QEMU}; {INSTALL_QEMU}")
    image, modules = find_kernel(Path(folder or ROOT))
    tun = read_module(modules, "drivers/net/tun.ko")
    if tun is None:
        raise LiveError(f"virtual: {image.name} has no module tun; {INSTALL_KERNEL}")
    files, names = {"tun.ko": tun}, []
    for index, flow in enumerate(scenario.flows):
        name = kernel_cca(flow.sender)
        if name is None:
            name, text, _ = exported[index]
            files[f"{name}.o"] = compile_bpf(text)
        elif (module := read_module(modules, f"net/ipv4/tcp_{name}.ko")) is not None:
            files[f"tcp_{name}.ko"] = module
        elif name not in ("reno", "cubic"):
            raise LiveError(f"virtual: flow {index}: {image.name} has no congestion control {name!r}")
        names.append(name)
    files["init"] = compile_guest("emulated.c", INSTALL_LIBRARIES).read_bytes()
    outside = {"kernel": image.read_bytes(), "shared": bytes(SHARED_BYTES)}
    start = [qemu, *_MACHINE.split(), "-append", _COMMAND_LINE, "-seed", str(scenario.seed)]
    return Guest(
        names, files, outside, "ask.c", (CPU_S, CPU_S_PER_MBIT), MEMORY_MIB, image.name.partition("-")[2], "serial",
        lambda memory_mib: [*start, "-m", str(memory_mib)],
        {index: policy for index, (_, _, policy) in exported.items() if policy is not None},
    )  # fmt: skip
