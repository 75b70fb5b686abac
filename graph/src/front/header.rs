//! Header of delegate blobs, shared by ExecuTorch's backends. It locates the graph and the
//! constants.

use crate::error::Error;
use alloc::format;

/// The parts of a delegate blob.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts<'p> {
    /// Graph flatbuffer.
    pub(super) graph: &'p [u8],
    /// Constants, addressed by offset.
    pub(super) data: &'p [u8],
}

/// Whether bytes start with the header `name`.
pub(super) fn is_header(bytes: &[u8], name: &[u8; 4]) -> bool {
    bytes.get(4..8) == Some(name)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, Error> {
    let field = bytes
        .get(at..at + N)
        .ok_or_else(|| Error::invalid("the header of a delegate is truncated"))?;
    Ok(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Returns `size` bytes from `offset` on; `None` if they are out of range.
pub(super) fn part(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

impl<'p> Parts<'p> {
    /// Splits a blob with this header and graph identifier.
    ///
    /// # Errors
    /// Header or identifier differ, or the header points outside the blob.
    pub(super) fn of(
        bytes: &'p [u8],
        header: &[u8; 4],
        identifier: &[u8; 4],
    ) -> Result<Self, Error> {
        let text = |name: &[u8; 4]| name.map(char::from).iter().collect::<alloc::string::String>();
        if !is_header(bytes, header) {
            let header = text(header);
            return Err(Error::Invalid(format!("delegate header: expected {header}")));
        }
        let (graph_offset, graph_size) = (number::<4>(bytes, 10)?, number::<4>(bytes, 14)?);
        let (data_offset, data_size) = (number::<4>(bytes, 18)?, number::<8>(bytes, 22)?);
        let graph = part(bytes, graph_offset, graph_size).ok_or_else(|| {
            Error::invalid("delegate header: the graph is outside the delegate's data")
        })?;
        // Size 0 means everything from the offset on.
        let data = match data_size {
            0 => usize::try_from(data_offset).ok().and_then(|start| bytes.get(start..)),
            size => part(bytes, data_offset, size),
        };
        let data = data.ok_or_else(|| {
            Error::invalid("delegate header: the constants are outside the delegate's data")
        })?;
        if !is_header(graph, identifier) {
            let identifier = text(identifier);
            return Err(Error::Invalid(format!(
                "delegate graph identifier: expected {identifier}"
            )));
        }
        Ok(Parts { graph, data })
    }
}
