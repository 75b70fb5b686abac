//! The boards: their targets, and how QEMU runs them.

/// A board, a folder below `boards/`.
pub(crate) struct Board {
    pub(crate) name: &'static str,
    /// Target triple.
    pub(crate) target: &'static str,
    /// The models that it runs. An example without any has its own main function, or is only built.
    pub(crate) models: &'static [&'static str],
    /// The emulated machine, if any.
    pub(crate) machine: Option<Machine>,
}

/// A QEMU machine.
pub(crate) struct Machine {
    pub(crate) program: &'static str,
    pub(crate) args: &'static [&'static str],
    /// Period of the board's clock in picoseconds.
    pub(crate) tick: u64,
    /// Whether models are files of the host, named as arguments.
    pub(crate) takes_files: bool,
}

/// QEMU's icount shift: each instruction takes 2^6 ns of virtual time, more than a tick of any
/// clock, so that clocks count instructions.
pub(crate) const ICOUNT_SHIFT: u32 = 6;

impl Machine {
    /// Converts ticks to instructions.
    pub(crate) fn instructions(&self, ticks: u64) -> u64 {
        (ticks * self.tick / 1000) >> ICOUNT_SHIFT
    }
}

/// Models for all but the smallest boards.
const COMMON_MODELS: &[&str] = &[
    "digits",
    "digits_int8",
    "keyword_spotting",
    "visual_wake_words",
    "image_classification",
    "anomaly_detection",
    "lstm_step",
    "lstm_step_apart",
    "mlp",
];

pub(crate) const BOARDS: &[Board] = &[
    Board {
        name: "qemu-cortex-m4f",
        target: "thumbv7em-none-eabihf",
        models: COMMON_MODELS,
        machine: Some(Machine {
            program: "qemu-system-arm",
            args: &["-machine", "mps2-an386"],
            tick: 40_000,
            takes_files: false,
        }),
    },
    Board {
        name: "qemu-cortex-m55",
        target: "thumbv8m.main-none-eabihf",
        models: COMMON_MODELS,
        machine: Some(Machine {
            program: "qemu-system-arm",
            args: &["-machine", "mps3-an547"],
            tick: 31_250,
            takes_files: false,
        }),
    },
    Board {
        name: "qemu-cortex-m33",
        target: "thumbv8m.main-none-eabihf",
        models: &["digits_int8", "keyword_spotting"],
        machine: Some(Machine {
            program: "qemu-system-arm",
            args: &["-machine", "mps2-an505"],
            tick: 50_000,
            takes_files: false,
        }),
    },
    Board {
        name: "qemu-cortex-m0",
        target: "thumbv6m-none-eabi",
        models: &["digits_int8"],
        machine: Some(Machine {
            program: "qemu-system-arm",
            args: &["-machine", "microbit"],
            tick: 62_500,
            takes_files: false,
        }),
    },
    Board {
        name: "qemu-riscv32",
        target: "riscv32imac-unknown-none-elf",
        models: COMMON_MODELS,
        machine: Some(Machine {
            program: "qemu-system-riscv32",
            args: &["-machine", "virt", "-bios", "none"],
            tick: 1_000,
            takes_files: false,
        }),
    },
    Board {
        name: "qemu-aarch64",
        target: "aarch64-unknown-none",
        models: COMMON_MODELS,
        machine: Some(Machine {
            program: "qemu-system-aarch64",
            args: &["-machine", "virt", "-cpu", "cortex-a53", "-nic", "none"],
            tick: 16_000,
            takes_files: true,
        }),
    },
    Board {
        name: "qemu-embassy",
        target: "thumbv7em-none-eabihf",
        models: &[],
        machine: Some(Machine {
            program: "qemu-system-arm",
            args: &["-machine", "mps2-an386"],
            tick: 40_000,
            takes_files: false,
        }),
    },
    Board {
        name: "qemu-rtic",
        target: "thumbv7m-none-eabi",
        models: &[],
        machine: Some(Machine {
            program: "qemu-system-arm",
            args: &["-machine", "lm3s6965evb"],
            tick: 80_000,
            takes_files: false,
        }),
    },
    Board { name: "rp2350", target: "thumbv8m.main-none-eabihf", models: &[], machine: None },
    Board { name: "nrf52840", target: "thumbv7em-none-eabihf", models: &[], machine: None },
    Board { name: "stm32h7", target: "thumbv7em-none-eabihf", models: &[], machine: None },
    Board { name: "esp32c3", target: "riscv32imc-unknown-none-elf", models: &[], machine: None },
];
