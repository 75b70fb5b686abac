//! Layered graph layout.
//!
//! A node's layer follows those of all its inputs. Edges over several layers get a dummy slot in
//! each of them, so that they are routed around nodes. Within layers, slots are ordered by the mean
//! position of their neighbours, in a few sweeps; then each is moved as close to its neighbours as
//! possible.

use std::collections::BTreeMap;

/// Node width per character, its minimum and maximum, and node height.
const CHAR_WIDTH: f32 = 7.2;
const MIN_WIDTH: f32 = 60.0;
const MAX_WIDTH: f32 = 260.0;
pub(super) const HEIGHT: f32 = 34.0;
/// Horizontal space between neighbours, and vertical space between layers.
const HORIZONTAL_GAP: f32 = 18.0;
const VERTICAL_GAP: f32 = 38.0;
/// Number of sweeps over all layers.
const SWEEPS: usize = 6;
/// Maximum number of dummy slots in total. Further edges are straight lines.
const MAX_DUMMY_SLOTS: usize = 60_000;
/// Maximum number of dummy slots of an edge. Longer edges are straight lines.
const MAX_EDGE_SLOTS: usize = 400;

/// Input node of the layout.
pub(super) struct Node {
    pub(super) characters: usize,
    /// Indices of its inputs, which precede it.
    pub(super) reads: Vec<usize>,
}

/// Result of the layout.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Centre and width of each node.
    pub(super) nodes: Vec<(f32, f32, f32)>,
    /// Source node, target node, and the points in between.
    pub(super) edges: Vec<(usize, usize, Vec<(f32, f32)>)>,
    pub(super) width: f32,
    pub(super) height: f32,
}

/// A node, or a dummy slot of an edge.
struct Slot {
    layer: usize,
    width: f32,
    before: Vec<usize>,
    behind: Vec<usize>,
    x: f32,
}

pub(super) fn width_of(characters: usize) -> f32 {
    (characters as f32 * CHAR_WIDTH + 20.0).clamp(MIN_WIDTH, MAX_WIDTH)
}

pub(super) fn compute(nodes: &[Node]) -> Layout {
    let mut layers_of: Vec<usize> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let behind = node.reads.iter().filter_map(|read| layers_of.get(*read)).max();
        layers_of.push(behind.map_or(0, |layer| layer + 1));
    }
    lower_sources(nodes, &mut layers_of);
    let slot = |layer, width| Slot { layer, width, before: Vec::new(), behind: Vec::new(), x: 0.0 };
    let mut slots: Vec<Slot> = nodes
        .iter()
        .zip(&layers_of)
        .map(|(node, layer)| slot(*layer, width_of(node.characters)))
        .collect();
    let mut dummy_slots = 0;
    let mut edges: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        for read in node.reads.iter().copied().filter(|read| *read < index) {
            let (from, to) = (layers_of[read], layers_of[index]);
            let span = to.saturating_sub(from + 1);
            let mut route = Vec::new();
            let mut last = read;
            if span <= MAX_EDGE_SLOTS && dummy_slots + span <= MAX_DUMMY_SLOTS {
                dummy_slots += span;
                for layer in from + 1..to {
                    slots.push(slot(layer, 0.0));
                    let own = slots.len() - 1;
                    connect(&mut slots, last, own);
                    route.push(own);
                    last = own;
                }
            }
            connect(&mut slots, last, index);
            edges.push((read, index, route));
        }
    }
    let count = slots.iter().map(|slot| slot.layer + 1).max().unwrap_or(0);
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (index, slot) in slots.iter().enumerate() {
        layers[slot.layer].push(index);
    }
    for layer in &layers {
        let mut x = 0.0;
        for index in layer {
            slots[*index].x = x + slots[*index].width / 2.0;
            x += slots[*index].width + HORIZONTAL_GAP;
        }
    }
    for sweep in 0..SWEEPS {
        let forward = sweep % 2 == 0;
        for at in 0..count {
            let at = if forward { at } else { count - 1 - at };
            order(&mut slots, &mut layers[at], forward);
        }
    }
    finished(&slots, &edges, nodes.len())
}

/// Moves nodes without inputs next to their first reader.
fn lower_sources(nodes: &[Node], layers: &mut [usize]) {
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for read in &node.reads {
            let layer = first.entry(*read).or_insert(usize::MAX);
            *layer = (*layer).min(layers[index]);
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        if let (true, Some(layer)) = (node.reads.is_empty(), first.get(&index)) {
            layers[index] = layer.saturating_sub(1);
        }
    }
}

fn connect(slots: &mut [Slot], from: usize, to: usize) {
    slots[from].behind.push(to);
    slots[to].before.push(from);
}

/// Orders a layer by the positions of neighbours, and moves each slot as close to them as possible.
fn order(slots: &mut [Slot], layer: &mut [usize], forward: bool) {
    let wanted: BTreeMap<usize, f32> = layer
        .iter()
        .map(|index| {
            let slot = &slots[*index];
            let (near, far) =
                if forward { (&slot.before, &slot.behind) } else { (&slot.behind, &slot.before) };
            let neighbours = if near.is_empty() { far } else { near };
            let sum: f32 = neighbours.iter().map(|other| slots[*other].x).sum();
            (*index, if neighbours.is_empty() { slot.x } else { sum / neighbours.len() as f32 })
        })
        .collect();
    layer.sort_by(|a, b| wanted[a].total_cmp(&wanted[b]));
    // Slots that would overlap form a block, which moves to the mean of their desired positions.
    let mut blocks: Vec<(f32, f32, usize)> = Vec::new();
    let mut offset = 0.0;
    let mut offsets = Vec::with_capacity(layer.len());
    for (place, index) in layer.iter().enumerate() {
        if place > 0 {
            offset += (slots[layer[place - 1]].width + slots[*index].width) / 2.0 + HORIZONTAL_GAP;
        }
        offsets.push(offset);
        // Dummy slots have a larger weight, which keeps edges straight.
        let weight = if slots[*index].width == 0.0 { 4.0 } else { 1.0 };
        blocks.push(((wanted[index] - offset) * weight, weight, 1));
        while let [.., (before, before_weight, _), (sum, weight, _)] = blocks[..]
            && before / before_weight > sum / weight
        {
            let (sum, weight, count) = blocks.pop().unwrap_or_default();
            if let Some(last) = blocks.last_mut() {
                *last = (last.0 + sum, last.1 + weight, last.2 + count);
            }
        }
    }
    let mut place = 0;
    for (sum, weight, count) in blocks {
        for _ in 0..count {
            slots[layer[place]].x = sum / weight + offsets[place];
            place += 1;
        }
    }
}

fn finished(slots: &[Slot], edges: &[(usize, usize, Vec<usize>)], nodes: usize) -> Layout {
    let left = slots.iter().map(|slot| slot.x - slot.width / 2.0).fold(f32::INFINITY, f32::min);
    let right =
        slots.iter().map(|slot| slot.x + slot.width / 2.0).fold(f32::NEG_INFINITY, f32::max);
    let y = |slot: &Slot| slot.layer as f32 * (HEIGHT + VERTICAL_GAP) + HEIGHT / 2.0;
    let point = |index: &usize| (slots[*index].x - left, y(&slots[*index]));
    let placed = slots.iter().take(nodes).map(|slot| (slot.x - left, y(slot), slot.width));
    let edges =
        edges.iter().map(|(from, to, route)| (*from, *to, route.iter().map(point).collect()));
    let bottom = slots.iter().map(y).fold(0.0, f32::max) + HEIGHT / 2.0;
    Layout {
        nodes: placed.collect(),
        edges: edges.collect(),
        width: if slots.is_empty() { 0.0 } else { right - left },
        height: bottom,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reads: &[&[usize]]) -> Layout {
        let nodes = reads.iter().map(|reads| Node { characters: 10, reads: reads.to_vec() });
        compute(&nodes.collect::<Vec<_>>())
    }

    /// Whether two nodes overlap.
    fn overlap(a: (f32, f32, f32), b: (f32, f32, f32)) -> bool {
        (a.1 - b.1).abs() < HEIGHT && (a.0 - b.0).abs() < (a.2 + b.2) / 2.0 - 0.1
    }

    #[test]
    fn inputs_are_above_readers() {
        let layout = of(&[&[], &[0], &[0], &[1, 2], &[0, 3]]);
        for (from, to, _) in &layout.edges {
            assert!(layout.nodes[*from].1 < layout.nodes[*to].1);
        }
        assert_eq!(layout.edges.len(), 6);
        // The edge from the first to the last node passes the layers in between.
        assert_eq!(layout.edges.iter().find(|edge| (edge.0, edge.1) == (0, 4)).unwrap().2.len(), 2);
    }

    #[test]
    fn nodes_do_not_overlap() {
        // A wide layer, a long chain with skip connections, and a source in between.
        let mut reads: Vec<Vec<usize>> = vec![vec![]];
        reads.extend((0..30).map(|_| vec![0]));
        reads.push((1..31).collect());
        for at in 31..80 {
            let skip = if at % 7 == 0 { vec![at, at - 6] } else { vec![at] };
            reads.push(skip);
            if at % 11 == 0 {
                break;
            }
        }
        reads.push(vec![]);
        reads.push(vec![reads.len() - 1, 31]);
        let borrowed: Vec<&[usize]> = reads.iter().map(Vec::as_slice).collect();
        let layout = of(&borrowed);
        for (index, a) in layout.nodes.iter().enumerate() {
            assert!(a.0 - a.2 / 2.0 >= -0.1 && a.0 + a.2 / 2.0 <= layout.width + 0.1);
            assert!(layout.nodes[index + 1..].iter().all(|b| !overlap(*a, *b)), "{index}");
        }
    }

    #[test]
    fn a_chain_is_straight_and_nothing_is_empty() {
        let layout = of(&[&[], &[0], &[1], &[2]]);
        assert!(layout.nodes.iter().all(|node| (node.0 - layout.nodes[0].0).abs() < 0.5));
        assert_eq!(of(&[]).nodes.len(), 0);
    }
}
