//! Checks of a native library for Android.

use super::SystemLibrary;
use anyhow::{Result, bail};
use object::Endianness;
use object::elf::{
    DF_TEXTREL, DT_FLAGS, DT_NEEDED, DT_TEXTREL, FileHeader32, FileHeader64, PF_X, PT_GNU_STACK,
    PT_LOAD, SHT_DYNSYM, STB_WEAK,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};

/// Libraries that apps may link, from the NDK's documentation.
const SYSTEM_LIBRARIES: [&str; 4] = ["libc.so", "libdl.so", "liblog.so", "libm.so"];

/// Checks a library of 32 or 64 bits.
pub(super) fn library(data: &[u8], libraries: &[SystemLibrary], page_size: u64) -> Result<()> {
    match data.get(4) {
        Some(1) => check::<FileHeader32<Endianness>>(data, libraries, page_size),
        _ => check::<FileHeader64<Endianness>>(data, libraries, page_size),
    }
}

fn check<Elf: FileHeader<Endian = Endianness>>(
    data: &[u8],
    libraries: &[SystemLibrary],
    page_size: u64,
) -> Result<()> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let mut faults = Vec::new();
    for segment in header.program_headers(endian, data)? {
        let align: u64 = segment.p_align(endian).into();
        if segment.p_type(endian) == PT_LOAD && !align.is_multiple_of(page_size) {
            faults.push(format!("a segment is aligned to {align} bytes, expected {page_size}"));
        }
        if segment.p_type(endian) == PT_GNU_STACK && segment.p_flags(endian) & PF_X != 0 {
            faults.push("the stack is executable".into());
        }
    }

    let sections = header.sections(endian, data)?;
    let symbols = sections.symbols(endian, data, SHT_DYNSYM)?;
    let name = |offset| String::from_utf8_lossy(symbols.strings().get(offset).unwrap_or(b"?"));
    if let Some((entries, _)) = sections.dynamic(endian, data)? {
        for entry in entries {
            let value: u64 = entry.d_val(endian).into();
            let tag = entry.tag32(endian);
            if tag == Some(DT_TEXTREL)
                || (tag == Some(DT_FLAGS) && value & u64::from(DF_TEXTREL) != 0)
            {
                faults.push("it has text relocations".into());
            }
            let needed = name(u32::try_from(value).unwrap_or(u32::MAX));
            if tag == Some(DT_NEEDED) && !SYSTEM_LIBRARIES.contains(&&*needed) {
                faults.push(format!("it needs {needed}, which Android does not have"));
            }
        }
    }
    let mut exported = 0;
    for symbol in symbols.iter().skip(1) {
        let symbol_name = name(symbol.st_name(endian));
        let is_listed =
            || libraries.iter().any(|library| library.symbols.iter().any(|s| *s == symbol_name));
        if symbol.is_undefined(endian) {
            // Code looks whether a weak symbol is there before it calls it.
            if symbol.st_bind() != STB_WEAK && !is_listed() {
                faults.push(format!(
                    "it imports {symbol_name}, which java/android/symbols.txt does not list for \
                     API level 24"
                ));
            }
        } else if symbol_name.starts_with("Java_") {
            exported += 1;
        } else {
            faults.push(format!("it exports {symbol_name}"));
        }
    }
    if exported == 0 {
        faults.push("it exports no native method".into());
    }
    match faults.is_empty() {
        true => Ok(()),
        false => bail!("{}", faults.join("\n")),
    }
}
