use super::*;
use crate::graph::Node;
use crate::operators::Operator;
use crate::passes::text::parse;
use crate::target::Target;
use crate::testing::registry;

/// Test processor that supports all but some operators.
struct MadeUp {
    name: &'static str,
    refuses: &'static [Operator],
    rates: Rates,
}

impl Target for MadeUp {
    fn backend(&self) -> &'static str {
        self.name
    }

    fn accepts(&self, _: &Graph<'_>, node: &Node) -> Result<(), String> {
        match self.refuses.contains(&node.operator) {
            true => Err(format!("no {}", node.operator.name())),
            false => Ok(()),
        }
    }

    fn rates(&self) -> Option<Rates> {
        Some(self.rates)
    }

    fn shares_memory(&self) -> bool {
        self.rates.transfer.is_infinite()
    }
}

const KERNELS: Rates = Rates {
    operations: 1e9,
    bytes: 1e9,
    call: 1e-6,
    region: 0.0,
    transfer: f64::INFINITY,
    fuses: false,
    emulated: false,
};

fn device() -> MadeUp {
    let rates = Rates { operations: 1e12, bytes: 1e12, region: 1e-4, transfer: 1e9, ..KERNELS };
    MadeUp { name: "device", refuses: &[Operator::SIN], rates }
}

fn engine() -> MadeUp {
    let rates = Rates { operations: 1e10, bytes: 1e10, fuses: true, ..KERNELS };
    MadeUp { name: "engine", refuses: &[Operator::COS], rates }
}

/// Processor of each call, by first letter.
fn places(placement: &Placement<'_>) -> String {
    let name = |on: &Option<usize>| placement.processors.name(*on).chars().next().unwrap();
    placement.on.iter().map(name).collect()
}

fn improved(text: &str) -> (String, String) {
    let (device, engine) = (device(), engine());
    let targets: [&dyn Target; 2] = [&device, &engine];
    let processors = Processors::cheapest(&targets).with_kernels(KERNELS);
    let graph = parse(text);
    let mut placement = Placement::preferred(&graph, processors, &registry());
    let before = places(&placement);
    placement.improve(&graph);
    (before, places(&placement))
}

#[test]
fn islands_go_where_the_whole_takes_less_time() {
    // A cheap call between two calls that the device does not support: only the transfers are
    // expensive.
    let island = "in x f32[512,512]
        a f32[512,512] = aten.mm.default(x, x)
        r f32[4] = aten.sin.default(a)
        c f32[4] = aten.cos.default(r)
        d f32[4] = aten.sin.default(c)
        e f32[512,512] = aten.mm.default(a, d)
        out e";
    assert_eq!(improved(island), ("deded".into(), "deked".into()));
    // Large calls stay on the device, even between others.
    let large = island.replace("f32[4]", "f32[4000000]").replace("cos", "exp");
    assert_eq!(improved(&large).1, "deeed");
    let product = "in x f32[512,512]
        a f32[512,512] = aten.sin.default(x)
        b f32[512,512] = aten.mm.default(a, x)
        c f32[512,512] = aten.sin.default(b)
        out c";
    assert_eq!(improved(product), ("ede".into(), "ede".into()));
    // All calls are small.
    let small = "in x f32[4,4]
        a f32[4,4] = aten.mm.default(x, x)
        b f32[4,4] = aten.exp.default(a)
        out b";
    assert_eq!(improved(small), ("dd".into(), "ee".into()));
}

#[test]
fn what_others_wait_for_goes_with_them() {
    // An independent matrix multiplication, positions computed elsewhere, and a call that uses
    // both.
    let text = "in x f32[512,512]
        in p f32[4]
        a f32[512,512] = aten.mm.default(x, x)
        e f32[4] = aten.exp.default(p)
        n f32[4] = aten.neg.default(e)
        s f32[4] = aten.sin.default(n)
        r f32[4] = aten.exp.default(s)
        t f32[4] = aten.sin.default(r)
        b f32[512,512] = aten.mm.default(a, a)
        c f32[512,512] = aten.mm.default(b, t)
        out c";
    assert_eq!(improved(text), ("dddededd".into(), "deeeeedd".into()));
    // A region stays on the device if moving it costs more than a second region.
    let product = "in x f32[512,512]
        a f32[512,512] = aten.mm.default(x, x)
        b f32[512,512] = aten.sin.default(a)
        c f32[512,512] = aten.mm.default(b, x)
        out c";
    assert_eq!(improved(product), ("ded".into(), "ded".into()));
}

#[test]
fn what_has_no_kernel_stays_where_it_can_run() {
    let text = "in q f32[1,1,2,2]
        o f32[1,1,2,2] = et_vk.sdpa.default(q, q, q, none, none)
        out o";
    let device = device();
    let targets: [&dyn Target; 1] = [&device];
    let processors = Processors::cheapest(&targets).with_kernels(KERNELS);
    let graph = parse(text);
    let mut placement = Placement::preferred(&graph, processors, &registry());
    placement.improve(&graph);
    assert_eq!(places(&placement), "d");
}

#[test]
fn reasons_and_estimates_are_told() {
    let (device, engine) = (device(), engine());
    let targets: [&dyn Target; 2] = [&device, &engine];
    let processors = Processors::cheapest(&targets).with_kernels(KERNELS);
    let graph = parse(
        "in x f32[4,4]
        a f32[4,4] = aten.mm.default(x, x)
        b f32[4,4] = aten.sin.default(a)
        c f32[4,4] = aten.cos.default(b)
        out c",
    );
    let placement = Placement::preferred(&graph, processors, &registry());
    assert_eq!(places(&placement), "ded");
    assert_eq!([placement.reason(0), placement.reason(1)], ["", "device: no aten.sin.default"]);
    let nearby = placement.nearby(&graph);
    assert_eq!(places(&nearby), "eek");
    let leaves = "device: an estimated slowdown of the graph";
    assert_eq!(nearby.reason(0), leaves);
    assert_eq!(nearby.reason(2), format!("{leaves}; engine: no aten.cos.default"));
    let [part, last] = &nearby.parts(&graph)[..] else { panic!() };
    let part = nearby.describe(&graph, part, Location::Device(0));
    let names = |report: &PartReport| -> Vec<String> {
        let all = report.own.iter().chain(&report.others);
        all.map(|estimate| estimate.processor.clone()).collect()
    };
    assert_eq!((part.calls, names(&part)), (2, vec!["engine".into(), "kernels".into()]));
    // One call with 128 operations: the sine is fused into the matrix multiplication.
    assert_eq!(part.own.unwrap().nanoseconds, 1019);
    let last = nearby.describe(&graph, last, Location::Host);
    assert_eq!(names(&last), ["kernels", "device"]);
    // The estimate includes the launch overhead, but not the transfers.
    assert!(last.others[0].nanoseconds > 100_000);
}
