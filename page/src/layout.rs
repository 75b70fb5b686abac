//! Places for the nodes of a graph: calls in layers, from what they read to what reads them.
//!
//! A node's layer is behind those of all that it reads. Edges over several layers get a place in
//! each of them, so that they lead around what is between. Within layers, nodes are ordered by
//! their neighbours' places, in a few sweeps; then each is moved as near to its neighbours as the
//! others let it.

use std::collections::BTreeMap;

/// How wide a node is, for how many letters, and how high.
const LETTER: f32 = 7.2;
const NARROWEST: f32 = 60.0;
const WIDEST: f32 = 260.0;
pub(super) const HEIGHT: f32 = 34.0;
/// The space between neighbours, and between layers.
const BESIDE: f32 = 18.0;
const BETWEEN: f32 = 38.0;
/// Sweeps over all layers.
const SWEEPS: usize = 6;
/// Places that edges have on the way, in all; edges that come later lead straight to where they go.
const MOST_BENDS: usize = 60_000;
/// Layers that an edge has places in; one over more leads straight.
const LONGEST: usize = 400;

/// A node that wants a place.
pub(super) struct Node {
    pub(super) letters: usize,
    /// What it reads, by index; each comes before it.
    pub(super) reads: Vec<usize>,
}

/// Where everything is.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// The middle of each node, and its width.
    pub(super) nodes: Vec<(f32, f32, f32)>,
    /// Which node, which one reads it, and the points between.
    pub(super) edges: Vec<(usize, usize, Vec<(f32, f32)>)>,
    pub(super) width: f32,
    pub(super) height: f32,
}

/// A node, or a place of an edge on its way.
struct Slot {
    layer: usize,
    width: f32,
    before: Vec<usize>,
    behind: Vec<usize>,
    x: f32,
}

pub(super) fn width_of(letters: usize) -> f32 {
    (letters as f32 * LETTER + 20.0).clamp(NARROWEST, WIDEST)
}

pub(super) fn place(nodes: &[Node]) -> Layout {
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
        .map(|(node, layer)| slot(*layer, width_of(node.letters)))
        .collect();
    let mut bends = 0;
    let mut edges: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        for read in node.reads.iter().copied().filter(|read| *read < index) {
            let (from, to) = (layers_of[read], layers_of[index]);
            let span = to.saturating_sub(from + 1);
            let mut way = Vec::new();
            let mut last = read;
            if span <= LONGEST && bends + span <= MOST_BENDS {
                bends += span;
                for layer in from + 1..to {
                    slots.push(slot(layer, 0.0));
                    let own = slots.len() - 1;
                    connect(&mut slots, last, own);
                    way.push(own);
                    last = own;
                }
            }
            connect(&mut slots, last, index);
            edges.push((read, index, way));
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
            x += slots[*index].width + BESIDE;
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

/// Moves what reads nothing next to the first that reads it.
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

/// Orders a layer by where the neighbours are, and moves each slot as near to them as there is
/// room.
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
    // Neighbours that would overlap move as one, to the mean of where they want to be.
    let mut blocks: Vec<(f32, f32, usize)> = Vec::new();
    let mut offset = 0.0;
    let mut offsets = Vec::with_capacity(layer.len());
    for (place, index) in layer.iter().enumerate() {
        if place > 0 {
            offset += (slots[layer[place - 1]].width + slots[*index].width) / 2.0 + BESIDE;
        }
        offsets.push(offset);
        // Where a run of others goes straight, it stays straight: it counts for more.
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
    let y = |slot: &Slot| slot.layer as f32 * (HEIGHT + BETWEEN) + HEIGHT / 2.0;
    let point = |index: &usize| (slots[*index].x - left, y(&slots[*index]));
    let placed = slots.iter().take(nodes).map(|slot| (slot.x - left, y(slot), slot.width));
    let edges = edges.iter().map(|(from, to, way)| (*from, *to, way.iter().map(point).collect()));
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
        let nodes = reads.iter().map(|reads| Node { letters: 10, reads: reads.to_vec() });
        place(&nodes.collect::<Vec<_>>())
    }

    /// Whether two nodes lie over one another.
    fn overlap(a: (f32, f32, f32), b: (f32, f32, f32)) -> bool {
        (a.1 - b.1).abs() < HEIGHT && (a.0 - b.0).abs() < (a.2 + b.2) / 2.0 - 0.1
    }

    #[test]
    fn what_is_read_is_above() {
        let layout = of(&[&[], &[0], &[0], &[1, 2], &[0, 3]]);
        for (from, to, _) in &layout.edges {
            assert!(layout.nodes[*from].1 < layout.nodes[*to].1);
        }
        assert_eq!(layout.edges.len(), 6);
        // The edge from the first to the last passes the layers between.
        assert_eq!(layout.edges.iter().find(|edge| (edge.0, edge.1) == (0, 4)).unwrap().2.len(), 2);
    }

    #[test]
    fn nothing_lies_over_another() {
        // A wide layer, a long chain with skips, and what reads nothing in between.
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
