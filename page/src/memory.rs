//! Memory plan of a method: offsets and lifetimes of tensors.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use torchlet::graph::method::{Instruction, Method, MethodValue};

/// A tensor in a planned buffer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    pub(super) value: usize,
    pub(super) offset: usize,
    pub(super) bytes: usize,
    /// First and last instruction that use it.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) what: String,
}

/// A planned buffer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Buffer {
    pub(super) bytes: usize,
    pub(super) blocks: Vec<Block>,
    /// Maximum bytes in use at a time, and the instruction.
    pub(super) peak: usize,
    pub(super) peak_at: usize,
}

/// Planned buffers of a method, and its number of instructions.
pub(super) fn plan(method: &Method<'_>) -> (Vec<Buffer>, usize) {
    let end = method.instructions.len();
    let mut uses: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut touch = |value: usize, at: usize| {
        let items = method.values.get(value).into_iter().flat_map(MethodValue::items);
        for value in items.chain([value]) {
            let used = uses.entry(value).or_insert((at, at));
            *used = (used.0.min(at), used.1.max(at));
        }
    };
    method.inputs.iter().for_each(|value| touch(*value, 0));
    for (at, instruction) in method.instructions.iter().enumerate() {
        let args: &[usize] = match instruction {
            Instruction::Kernel { args, .. } | Instruction::Delegate { args, .. } => args,
            Instruction::Move { from, to } => &[*from, *to],
            Instruction::JumpFalse { condition, .. } => &[*condition],
            _ => &[],
        };
        args.iter().for_each(|value| touch(*value, at));
    }
    method.outputs.iter().for_each(|value| touch(*value, end.saturating_sub(1)));
    let mut buffers: Vec<Buffer> =
        method.planned.iter().map(|bytes| Buffer { bytes: *bytes, ..Buffer::default() }).collect();
    for (value, (first, last)) in uses {
        let Some(tensor) = method.tensor(value) else { continue };
        let Some((buffer, offset)) = tensor.location else { continue };
        if let Some(buffer) = buffers.get_mut(buffer) {
            let (bytes, what) = (tensor.info.nbytes(), tensor.info.to_string());
            buffer.blocks.push(Block { value, offset, bytes, first, last, what });
        }
    }
    buffers.iter_mut().for_each(find_peak);
    (buffers, end)
}

/// Finds the peak, which is always at the start of a block's lifetime.
fn find_peak(buffer: &mut Buffer) {
    let mut starts: BTreeMap<usize, Vec<&Block>> = BTreeMap::new();
    for block in &buffer.blocks {
        starts.entry(block.first).or_default().push(block);
    }
    let (mut live, mut peak, mut peak_at) = (Vec::new(), 0, 0);
    for (at, blocks) in starts {
        live.retain(|block: &&Block| at <= block.last);
        live.extend(blocks);
        live.sort_by_key(|block| block.offset);
        // Shared memory, for example of views, counts once.
        let (mut bytes, mut covered) = (0usize, 0usize);
        for block in &live {
            let end = block.offset.saturating_add(block.bytes);
            bytes = bytes.saturating_add(end.saturating_sub(block.offset.max(covered)));
            covered = covered.max(end);
        }
        if bytes > peak {
            (peak, peak_at) = (bytes, at);
        }
    }
    (buffer.peak, buffer.peak_at) = (peak, peak_at);
}

pub(super) fn object((buffers, instructions): &(Vec<Buffer>, usize)) -> Value {
    let buffers = buffers.iter().map(|buffer| {
        let blocks = buffer.blocks.iter().map(|block| {
            json!([block.value, block.offset, block.bytes, block.first, block.last, block.what])
        });
        json!({
            "bytes": buffer.bytes,
            "peak": buffer.peak,
            "at": buffer.peak_at,
            "blocks": blocks.collect::<Vec<_>>(),
        })
    });
    json!({ "instructions": instructions, "buffers": buffers.collect::<Vec<_>>() })
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;

/// Draws the plan: instructions on the x axis, offsets on the y axis.
pub(super) fn svg(method: &Method<'_>) -> String {
    let (buffers, instructions) = plan(method);
    let buffers: Vec<&Buffer> = buffers.iter().filter(|buffer| buffer.bytes > 0).collect();
    let height = 30.0 + buffers.len() as f64 * (HEIGHT + 60.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <style>svg {{ background: #fff; color: #222 }} text {{ fill: #222 }} .frame {{ fill: none; stroke: #999 }} .peak {{ stroke: #c22; stroke-dasharray: 4 3 }} rect.block {{ stroke: #fff; stroke-width: .6 }}\n\
         @media (prefers-color-scheme: dark) {{ svg {{ background: #16181d }} text {{ fill: #ddd }} rect.block {{ stroke: #16181d }} }}</style>\n",
        WIDTH + 40.0
    );
    let mut top = 30.0;
    for (number, buffer) in buffers.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = draw(&mut svg, buffer, number, instructions.max(1), top);
        top += HEIGHT + 60.0;
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(
    svg: &mut String,
    buffer: &Buffer,
    number: usize,
    instructions: usize,
    top: f64,
) -> std::fmt::Result {
    let (x, y) = (WIDTH / instructions as f64, HEIGHT / buffer.bytes.max(1) as f64);
    let waste = 100.0 * (1.0 - buffer.peak as f64 / buffer.bytes.max(1) as f64);
    writeln!(
        svg,
        "<text x=\"20\" y=\"{}\">buffer {number}: {} bytes, {} in use at most (instruction {}), {waste:.1} % waste</text>",
        top - 8.0,
        buffer.bytes,
        buffer.peak,
        buffer.peak_at,
    )?;
    for block in &buffer.blocks {
        let hue = block.value * 47 % 360;
        writeln!(
            svg,
            "<rect class=\"block\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"hsl({hue} 55% 60%)\"><title>value {}: {}, {} bytes at {}, instructions {} to {}</title></rect>",
            20.0 + x * block.first as f64,
            top + HEIGHT - y * block.offset.saturating_add(block.bytes) as f64,
            x * (block.last - block.first + 1) as f64,
            y * block.bytes as f64,
            block.value,
            block.what,
            block.bytes,
            block.offset,
            block.first,
            block.last,
        )?;
    }
    let peak = 20.0 + x * (buffer.peak_at as f64 + 0.5);
    writeln!(
        svg,
        "<line class=\"peak\" x1=\"{peak:.2}\" x2=\"{peak:.2}\" y1=\"{top}\" y2=\"{}\"/>",
        top + HEIGHT
    )?;
    writeln!(
        svg,
        "<rect class=\"frame\" x=\"20\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>"
    )?;
    writeln!(
        svg,
        "<text x=\"20\" y=\"{}\">instruction 0</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        top + HEIGHT + 18.0,
        20.0 + WIDTH,
        top + HEIGHT + 18.0,
        instructions - 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_shared_memory_once() {
        let block = |offset, bytes, first, last| {
            let (value, what) = (0, String::new());
            Block { value, offset, bytes, first, last, what }
        };
        let blocks = vec![
            block(0, 64, 0, 1),
            block(64, 32, 1, 3),
            block(80, 40, 2, 3),
            block(0, 16, 2, 2),
            block(0, 64, 5, 5),
        ];
        let mut buffer = Buffer { bytes: 128, blocks, ..Buffer::default() };
        find_peak(&mut buffer);
        assert_eq!((buffer.peak, buffer.peak_at), (96, 1));
        buffer.blocks.push(block(100, 28, 1, 2));
        find_peak(&mut buffer);
        assert_eq!((buffer.peak, buffer.peak_at), (124, 1));
        find_peak(&mut Buffer::default());
    }
}
