use super::*;
use crate::recording::RunKind;

fn event(kind: Kind, name: &str, instruction: u32, start: u64, end: u64) -> Event {
    let instruction = (kind != Kind::Execute).then_some(instruction);
    let (part, location) = (None, Location::Host(0));
    Event { kind, name: name.into(), instruction, part, detail: Vec::new(), location, start, end }
}

fn part(name: &str, location: Location, start: u64, end: u64) -> Event {
    Event { location, part: Some(1), ..event(Kind::DelegatePart, name, 9, start, end) }
}

/// Runs of two kernels of the same name and a delegate, with increasing times.
fn recording(scale: u64) -> Recording {
    let mut recording = Recording::default();
    for number in 1..=5 {
        let mut run = Run::new(RunKind::Execute, "Execute");
        let time = scale * number;
        run.events = vec![
            event(Kind::Operator, "aten::add.out", 0, 0, 10 * time),
            event(Kind::Operator, "aten::add.out", 1, 10 * time, 30 * time),
            part(WAIT, Location::Host(0), 30 * time, 60 * time),
            part("matmul", Location::Device, 30 * time, 55 * time),
            event(Kind::Delegate, "Gpu", 9, 30 * time, 60 * time),
            event(Kind::Execute, "forward", 0, 0, 70 * time),
        ];
        recording.runs.push(run);
    }
    recording
}

#[test]
fn statistics_match_numpy() {
    let found = Statistics::of(&[30, 10, 20, 40]);
    // numpy.percentile([10, 20, 30, 40], [10, 50, 90])
    assert_eq!((found.p10, found.p50, found.p90), (13.0, 25.0, 37.0));
    assert_eq!((found.min, found.mean, found.max), (10.0, 25.0, 40.0));
    assert_eq!(Statistics::of(&[]).p50, 0.0);
}

#[test]
fn times_sum_to_the_total() {
    let profile = Profile::of(&recording(1), 0);
    assert_eq!(profile.runs, [70, 140, 210, 280, 350]);
    let names: Vec<_> = profile.rows.iter().map(|row| (row.name.as_str(), row.calls)).collect();
    assert_eq!(names, [("aten::add.out", 1), ("aten::add.out", 1), (WAIT, 1), ("matmul", 1)]);
    // The wait of the host overlaps with device work, which counts once.
    let wait = profile.rows.iter().find(|row| row.name == WAIT).unwrap();
    assert_eq!(wait.times, [5, 10, 15, 20, 25]);
    assert_eq!(profile.unaccounted(), [10, 20, 30, 40, 50]);
    let sums = profile.by_operator();
    assert_eq!((sums[0].name.as_str(), sums[0].calls), ("aten::add.out", 2));
    assert_eq!(sums[0].times, [30, 60, 90, 120, 150]);
    assert_eq!(sums[1].name, "matmul");
    assert_eq!(Profile::of(&recording(1), 2).runs, [210, 280, 350]);
    assert_eq!(Profile::of(&recording(1), 9).runs.len(), 5);
}

#[test]
fn profiles_are_saved_and_compared() {
    let (before, now) = (Profile::of(&recording(1), 0), Profile::of(&recording(3), 0));
    assert_eq!(Profile::from_json(&now.to_json()).unwrap(), now);
    let changes = now.compared_with(&before);
    assert_eq!(changes[0], ("aten::add.out".into(), 90.0, 270.0));
    let back = before.compared_with(&now);
    assert_eq!(back.last().unwrap(), &("aten::add.out".into(), 270.0, 90.0));
    for damage in ["format", "runs", "rows", "load"] {
        let mut object = now.to_json();
        object[damage] = Value::Bool(true);
        assert!(Profile::from_json(&object).is_err(), "{damage}");
    }
    assert!(Profile::from_json(&Value::Null).is_err());
}

#[test]
fn stacks_and_timelines_contain_all_events() {
    let recording = recording(1);
    let folded = crate::flame::folded(&recording);
    assert!(folded.contains(&"run;aten::add.out 450".into()), "{folded:?}");
    assert!(folded.contains(&format!("run;Gpu;{WAIT} 450")) && folded.contains(&"run 150".into()));
    let trace = crate::trace::object(&recording, "model.pte");
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), 5 * 6);
    let device = events.iter().find(|event| event["name"] == "matmul").unwrap();
    assert_eq!((&device["pid"], &device["dur"]), (&2.into(), &0.025.into()));
}

#[test]
fn extreme_times_saturate() {
    let mut recording = Recording::default();
    let mut run = Run::new(RunKind::Execute, "Execute");
    for instruction in 0..3 {
        run.events.push(event(
            Kind::Operator,
            "\u{ff}\u{ff}\u{ff}\u{ff}",
            instruction,
            0,
            u64::MAX,
        ));
        run.events.push(Event {
            instruction: Some(instruction),
            ..part("p", Location::Device, 0, u64::MAX)
        });
        run.events.push(event(Kind::Delegate, "d", instruction, 0, u64::MAX));
        run.events.push(Event {
            instruction: Some(instruction),
            ..part("h", Location::Host(0), 0, u64::MAX)
        });
    }
    recording.runs = vec![run.clone(), run];
    let profile = Profile::of(&recording, 0);
    assert!(profile.by_operator().iter().all(|row| row.times == [u64::MAX; 2]));
    assert_eq!(profile.unaccounted(), [0, 0]);
    assert!(crate::flame::svg(&recording, "").contains("</svg>"));
}

#[test]
fn rows_have_a_time_for_each_run() {
    let mut saved = Profile::of(&recording(1), 0).to_json();
    assert!(Profile::from_json(&saved).is_ok());
    saved["rows"][0]["times"] = json!([1]);
    assert_eq!(Profile::from_json(&saved), Err(ProfileError("times")));
}

#[test]
fn stored_times_are_bounded() {
    let mut recording = Recording::default();
    let mut run = Run::new(RunKind::Execute, "Execute");
    run.events = (0..1 << 10).map(|at| event(Kind::Operator, "a", at, 0, 1)).collect();
    recording.runs.push(run);
    recording.runs.resize(1 << 15, Run::new(RunKind::Execute, "Execute"));
    let profile = Profile::of(&recording, 0);
    assert!((1 << 14..=1 + (1 << 14)).contains(&profile.runs.len()), "{}", profile.runs.len());
}
