//! Builds and runs firmware images, and decodes their logs.

use super::machines::{Board, ICOUNT_SHIFT, Machine};
use crate::process::{self, cargo, command, root, target_dir};
use anyhow::{Context, Result, bail, ensure};
use defmt_decoder::{DecodeError, Table};
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Time limit of a run; the slowest image needs a few seconds.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A built image.
pub(crate) struct Image {
    path: PathBuf,
    pub(crate) elf: Vec<u8>,
}

impl Image {
    /// Builds a board's image, with environment variables for its build script.
    pub(crate) fn build(board: &Board, variables: &[(&str, &str)]) -> Result<Self> {
        let out = target_dir().join("boards");
        let mut build = cargo(&["build", "--quiet", "--release", "--locked"]);
        build.current_dir(root().join("boards").join(board.name));
        build.arg("--target-dir").arg(&out);
        build.envs(variables.iter().copied());
        process::run(build)?;
        let path = out.join(board.target).join("release").join(board.name);
        let elf = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(Image { path, elf })
    }

    /// Writes the image in another format beside it, and returns the path.
    pub(crate) fn write_converted(&self, ending: &str, bytes: &[u8]) -> Result<String> {
        let path = self.path.with_extension(ending);
        std::fs::write(&path, bytes)?;
        Ok(path.display().to_string())
    }

    /// Runs the image with arguments, and returns the logged lines.
    ///
    /// # Errors
    ///
    /// If the image does not exit successfully.
    pub(crate) fn run(&self, machine: &Machine, arguments: &[String]) -> Result<Vec<String>> {
        self.run_decoding(machine, arguments, |bytes| decode(&self.elf, bytes))
    }

    /// Like [`run`](Self::run), for an image that prints text.
    ///
    /// # Errors
    ///
    /// If the image does not exit successfully.
    pub(crate) fn run_printing(&self, machine: &Machine) -> Result<Vec<String>> {
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
        self.run_decoding(machine, &[], |bytes| Ok(text(bytes)))
    }

    fn run_decoding(
        &self,
        machine: &Machine,
        arguments: &[String],
        decode: impl FnOnce(&[u8]) -> Result<Vec<String>>,
    ) -> Result<Vec<String>> {
        let mut qemu = command(machine.program, machine.args);
        qemu.args(["-display", "none", "-monitor", "none", "-serial", "none"]);
        qemu.args(["-icount", &format!("shift={ICOUNT_SHIFT}")]);
        let mut semihosting = "enable=on,target=native,arg=image".to_owned();
        for argument in arguments {
            semihosting += ",arg=";
            // A comma would end the argument.
            semihosting += &argument.replace(',', ",,");
        }
        qemu.args(["-semihosting-config", &semihosting]);
        qemu.arg("-kernel").arg(&self.path);
        println!("$ {}", process::show(&qemu));
        let mut child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut stdout = child.stdout.take().context("a pipe")?;
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).map(|_| bytes)
        });
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if start.elapsed() > TIME_LIMIT {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let bytes = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        let lines = decode(&bytes)?;
        let log = || lines.join("\n");
        let Some(status) = status else {
            bail!("the firmware did not finish within {} s:\n{}", TIME_LIMIT.as_secs(), log());
        };
        ensure!(status.success(), "the firmware failed ({status}):\n{}", log());
        Ok(lines)
    }
}

/// Decodes the log frames of the firmware.
fn decode(elf: &[u8], bytes: &[u8]) -> Result<Vec<String>> {
    let table = Table::parse(elf)?.context("the image has no strings of log lines")?;
    let mut decoder = table.new_stream_decoder();
    decoder.received(bytes);
    let mut lines = Vec::new();
    loop {
        match decoder.decode() {
            Ok(frame) => lines.push(frame.display_message().to_string()),
            Err(DecodeError::UnexpectedEof) => return Ok(lines),
            Err(DecodeError::Malformed) if table.encoding().can_recover() => {
                lines.push("(a malformed line)".to_owned());
            }
            Err(DecodeError::Malformed) => bail!("malformed log after: {lines:?}"),
        }
    }
}
