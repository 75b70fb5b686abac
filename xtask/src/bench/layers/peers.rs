//! Libraries with kernels for the same layers, built from external sources.

use super::Chip;
use crate::process::{command, output, root, target_dir};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library to compare with.
pub(super) struct Peer {
    /// Name of its counts.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// A file by which its sources are recognized.
    header: &'static str,
    /// Compiler of the peer's build, with its flags.
    compiler: &'static str,
    flags: &'static [&'static str],
    /// Adds the source files to a compiler command.
    sources: fn(&mut Command, &Path) -> Result<()>,
}

pub(super) const PEERS: [Peer; 2] = [
    Peer {
        name: "cmsis-nn",
        title: "CMSIS-NN",
        header: "Include/arm_nnfunctions.h",
        compiler: "arm-none-eabi-gcc",
        flags: &["-Ofast", "-std=c11"],
        sources: cmsis_nn,
    },
    Peer {
        name: "tflite-micro",
        title: "TFLite Micro",
        header: "tensorflow/lite/kernels/internal/reference/integer_ops/conv.h",
        compiler: "arm-none-eabi-g++",
        flags: &[
            "-O2",
            "-std=c++17",
            "-fno-rtti",
            "-fno-exceptions",
            "-fno-threadsafe-statics",
            "-fno-unwind-tables",
            "-fno-asynchronous-unwind-tables",
            "-DTF_LITE_STATIC_MEMORY",
            "-DNDEBUG",
        ],
        sources: tflite_micro,
    },
];

/// Flags for all targets.
const FLAGS: &[&str] = &["-mthumb", "-mfloat-abi=hard", "-ffunction-sections", "-fdata-sections"];

/// Source folders of CMSIS-NN with 8-bit layers.
const FOLDERS: &[&str] =
    &["BasicMath", "Convolution", "FullyConnected", "NNSupport", "Pooling", "Softmax", "Transpose"];

fn cmsis_nn(compile: &mut Command, sources: &Path) -> Result<()> {
    compile.arg("-I").arg(sources.join("Include")).arg(adapter("cmsis_nn.c"));
    for folder in FOLDERS {
        let folder = sources.join("Source").join(format!("{folder}Functions"));
        let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            // Float kernels need types that some compilers lack.
            let is_float = ["_f16", "_f32", "_flt"].iter().any(|end| name.ends_with(end));
            if path.extension().is_some_and(|it| it == "c") && !is_float {
                compile.arg(path);
            }
        }
    }
    Ok(())
}

fn tflite_micro(compile: &mut Command, sources: &Path) -> Result<()> {
    compile.arg("-I").arg(sources).arg(adapter("tflite_micro.cc"));
    for library in ["gemmlowp", "ruy"] {
        // Where TFLite Micro's own build puts them.
        let folder = sources.join("tensorflow/lite/micro/tools/make/downloads").join(library);
        ensure!(folder.is_dir(), "{} does not exist: clone {library} there", folder.display());
        compile.arg("-I").arg(folder);
    }
    for file in ["common.cc", "runtime_shape.cc"] {
        compile.arg(sources.join("tensorflow/lite/kernels/internal").join(file));
    }
    Ok(())
}

/// Source file that calls a library's kernels.
fn adapter(name: &str) -> PathBuf {
    root().join("boards/kernel-counts/peer").join(name)
}

impl Peer {
    /// Fails if the folder does not contain the library's sources.
    pub(super) fn check(&self, sources: &Path) -> Result<()> {
        let header = sources.join(self.header);
        ensure!(
            header.is_file(),
            "no {}: are these the sources of {}?",
            header.display(),
            self.title
        );
        Ok(())
    }

    /// Builds the library with its adapter. Returns the folder of the archive.
    pub(super) fn build(&self, chip: &Chip, sources: &Path) -> Result<PathBuf> {
        let flags = [self.flags, FLAGS, chip.c].concat();
        println!("{}: {} {}", self.title, self.compiler, flags.join(" "));
        let out = target_dir().join("kernel-counts").join(self.name).join(chip.name);
        // Stale object files would be linked.
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir_all(&out)?;
        let mut compile = command(self.compiler, &flags);
        compile.arg("-c").current_dir(&out);
        (self.sources)(&mut compile, &std::path::absolute(sources)?)?;
        output(compile)?;
        let mut archive = command("arm-none-eabi-ar", &["rcs", "libpeer.a"]);
        for entry in std::fs::read_dir(&out)? {
            archive.arg(entry?.file_name());
        }
        archive.current_dir(&out);
        output(archive)?;
        Ok(out)
    }
}
