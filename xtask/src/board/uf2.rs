//! Images as UF2 files, which are copied onto a Pico 2 as onto a disk: blocks of 512 bytes, each
//! with 256 bytes of flash and their address (<https://github.com/microsoft/uf2>).

use anyhow::{Result, ensure};
use object::elf::PT_LOAD;
use object::read::elf::{ElfFile32, ProgramHeader};
use std::collections::BTreeMap;

/// Bytes of flash per block.
const PAYLOAD: usize = 256;

/// Family id of the RP2350 for Arm images in the secure state.
const FAMILY: u32 = 0xe48b_ff59;

/// Converts an image to blocks.
pub(super) fn of(elf: &[u8]) -> Result<Vec<u8>> {
    let pages = pages(elf)?;
    let count = u32::try_from(pages.len())?;
    let mut file = Vec::new();
    for (number, (address, page)) in (0u32..).zip(&pages) {
        // Two magic numbers, the flag for a family id, and the block's fields.
        let head = [0x0a32_4655, 0x9e5d_5157, 0x2000, *address, 256, number, count, FAMILY];
        for word in head {
            file.extend(word.to_le_bytes());
        }
        file.extend(page);
        file.resize(file.len() + 476 - PAYLOAD, 0);
        file.extend(0x0ab1_6f30u32.to_le_bytes());
    }
    Ok(file)
}

/// Contents of flash by page; gaps have the erased value.
fn pages(elf: &[u8]) -> Result<BTreeMap<u32, [u8; PAYLOAD]>> {
    let file = ElfFile32::<object::Endianness>::parse(elf)?;
    let mut pages = BTreeMap::new();
    for segment in file.elf_program_headers() {
        let endian = file.endian();
        if segment.p_type(endian) != PT_LOAD {
            continue;
        }
        let start = segment.p_paddr(endian);
        let data =
            segment.data(endian, elf).map_err(|()| anyhow::anyhow!("a truncated segment"))?;
        for (address, byte) in (start..).zip(data) {
            let within = address as usize % PAYLOAD;
            let page = pages.entry(address - within as u32).or_insert([0xff; PAYLOAD]);
            page[within] = *byte;
        }
    }
    ensure!(!pages.is_empty(), "nothing is stored in flash");
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Arm ELF image with one segment.
    fn elf(address: u32, bytes: &[u8]) -> Vec<u8> {
        let mut file = b"\x7fELF\x01\x01\x01".to_vec();
        file.resize(16, 0);
        let len = bytes.len() as u32;
        for half in [2u16, 40] {
            file.extend(half.to_le_bytes());
        }
        // Version, entry, offsets of program and section headers, flags.
        for word in [1, address, 52, 0, 0x0500_0000] {
            file.extend(u32::to_le_bytes(word));
        }
        for half in [52u16, 32, 1, 40, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        for word in [PT_LOAD, 84, address, address, len, len, 5, 4] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes);
        file
    }

    fn word(block: &[u8], at: usize) -> u32 {
        u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
    }

    #[test]
    fn blocks_hold_the_flash_by_pages() {
        let bytes: Vec<u8> = (0..=255).cycle().take(300).collect();
        let file = of(&elf(0x1000_0080, &bytes)).unwrap();
        let blocks: Vec<&[u8]> = file.chunks(512).collect();
        assert_eq!(blocks.len(), 2);
        for (number, block) in blocks.iter().enumerate() {
            assert_eq!((word(block, 0), word(block, 508)), (0x0a32_4655, 0x0ab1_6f30));
            assert_eq!(word(block, 12), 0x1000_0000 + 256 * number as u32);
            assert_eq!((word(block, 20), word(block, 24)), (number as u32, 2));
        }
        let flash: Vec<u8> = blocks.iter().flat_map(|block| block[32..288].to_vec()).collect();
        assert_eq!(flash[0x80..0x80 + 300], bytes);
        assert!(flash[..0x80].iter().chain(&flash[0x80 + 300..]).all(|byte| *byte == 0xff));
    }
}
