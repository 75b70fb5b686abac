//! Resource limits of templates: instructions, bytes and stack.

use crate::error::Error;
use minijinja::value::ValueKind;
use minijinja::{ErrorKind, State, Value};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Base number of instructions of a rendering. Templates of real models need one to two thousand
/// for a few messages and functions. A single instruction may compare all of the text, so the limit
/// must not grow with the text: two million instructions took hours.
const FUEL: u64 = 50_000;
/// Additional instructions per input value. Real templates need a few hundred per message, which
/// has four or more values.
const FUEL_PER_VALUE: u64 = 200;
/// Bytes of input text per additional instruction. minijinja charges one instruction per 64 bytes
/// that a filter or method reads or writes, and real templates pass a message through at most
/// seven.
const BYTES_PER_INSTRUCTION: u64 = 8;
/// Maximum number of additional instructions for input text, reached at about two million bytes.
const MAX_TEXT_FUEL: u64 = 200_000;
/// Maximum number of instructions for any input.
const MAX_FUEL: u64 = 2_000_000;
/// Bytes written per unit of fuel by this crate's filters and functions. A separate budget, with
/// one unit per byte of input text, pays for these bytes, so that long texts can be written as
/// JSON.
const BYTES_PER_FUEL: usize = 4;
/// Bytes of text in a list per unit of fuel. minijinja charges the same for text that it reads.
const BYTES_PER_PART: u64 = 64;
/// Maximum source length in bytes. Real templates are shorter. Longer ones could take minutes to
/// parse: constant folding visits the operands once per operator.
pub(super) const MAX_TEMPLATE: usize = 64 << 10;
/// Stack size of the rendering thread. Nested operators and lists recurse without a depth limit;
/// this suffices for the largest template, and for a whole budget of fuel. Unused stack occupies no
/// memory.
const STACK: usize = if cfg!(target_pointer_width = "64") { 1 << 30 } else { 64 << 20 };

thread_local! {
    /// Remaining byte budget. Each rendering has [its own thread](with_stack).
    static BYTE_BUDGET: Cell<u64> = const { Cell::new(0) };
}

/// Resource budget of a rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fuel {
    /// Instructions, including minijinja's charges for bytes.
    pub(super) instructions: u64,
    /// Units for bytes written by this crate.
    bytes: u64,
}

impl Fuel {
    /// Budget for a template with these input values. It grows with the number of values and the
    /// length of their texts.
    pub(super) fn new<'v>(given: impl IntoIterator<Item = &'v Value>) -> Self {
        let (mut values, mut text) = (0u64, 0u64);
        for value in given {
            // Only values created by templates can fail to iterate; input values cannot.
            let _ = each_part(value, &mut |part| {
                values = values.saturating_add(1);
                text = text.saturating_add(part.as_str().map_or(0, str::len) as u64);
                Ok(())
            });
        }
        let fuel = FUEL.saturating_add(values.saturating_mul(FUEL_PER_VALUE));
        let of_text = (text / BYTES_PER_INSTRUCTION).min(MAX_TEXT_FUEL);
        Fuel {
            instructions: fuel.saturating_add(of_text).min(MAX_FUEL),
            bytes: fuel.saturating_add(text).min(MAX_FUEL),
        }
    }

    /// Sets the byte budget of this thread.
    pub(super) fn set_byte_budget(self) {
        BYTE_BUDGET.set(self.bytes);
    }
}

/// Charges for bytes to be written.
pub(super) fn charge_bytes(bytes: usize) -> Result<(), minijinja::Error> {
    let price = bytes.div_ceil(BYTES_PER_FUEL) as u64;
    let left = BYTE_BUDGET.get().checked_sub(price);
    // An empty budget stays empty.
    BYTE_BUDGET.set(left.unwrap_or(0));
    left.map(|_| ()).ok_or_else(|| minijinja::Error::from(ErrorKind::OutOfFuel))
}

/// Charges fuel for everything that a list or map contains, including text: it may contain another
/// one several times, nested.
pub(super) fn charge_contents(
    state: &State<'_, '_>,
    value: &Value,
) -> Result<(), minijinja::Error> {
    each_part(value, &mut |part| charge_part(state, part))
}

/// Charges fuel for one part of a list or map, without what it contains.
pub(super) fn charge_part(state: &State<'_, '_>, part: &Value) -> Result<(), minijinja::Error> {
    let bytes = part.as_str().map_or(0, str::len) as u64;
    state.consume_fuel(bytes / BYTES_PER_PART + 1)
}

/// As [`charge_contents`], from the byte budget, before the contents are written.
pub(super) fn charge_text(value: &Value) -> Result<(), minijinja::Error> {
    each_part(value, &mut |part| charge_bytes(part.as_str().map_or(1, |text| text.len().max(1))))
}

/// Charges fuel for a text that is read as a whole.
pub(super) fn charge_read(state: &State<'_, '_>, text: &str) -> Result<(), minijinja::Error> {
    state.consume_fuel(text.len() as u64 / BYTES_PER_PART)
}

/// Visits everything that a list or map contains, recursively.
pub(super) fn each_part(
    value: &Value,
    show: &mut impl FnMut(&Value) -> Result<(), minijinja::Error>,
) -> Result<(), minijinja::Error> {
    let is_map = match value.kind() {
        ValueKind::Map => true,
        ValueKind::Seq | ValueKind::Iterable => false,
        _ => return Ok(()),
    };
    for part in value.try_iter()? {
        show(&part)?;
        if is_map {
            // A key may be a tuple.
            each_part(&part, show)?;
            let field = value.get_item(&part)?;
            show(&field)?;
            each_part(&field, show)?;
        } else {
            each_part(&part, show)?;
        }
    }
    Ok(())
}

/// Runs `work` on a thread with a large stack.
pub(super) fn with_stack<T: Send>(
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let refuse = |message: String| Err(Error::Template { message });
    std::thread::scope(|scope| {
        match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work) {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| refuse("it cannot be parsed: the parser panicked".into())),
            Err(error) => refuse(format!("cannot start a thread to parse it: {error}")),
        }
    })
}

/// Maximum number of abandoned renderings that run until their fuel is used up. Clients that
/// disconnect must not accumulate running threads.
const MAX_ABANDONED: usize = 8;
/// Interval for checking whether the result is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Counts an abandoned rendering until its thread drops this.
struct Running {
    /// `None` while running, `Some(true)` once abandoned, `Some(false)` once finished.
    state: Arc<Mutex<Option<bool>>>,
    left: Arc<AtomicUsize>,
}

impl Running {
    /// Marks the rendering as abandoned, unless it has ended.
    fn abandon(state: &Mutex<Option<bool>>, left: &AtomicUsize) {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_none() {
            *state = Some(true);
            left.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.replace(false) == Some(true) {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Runs `work` on a thread with a large stack. Stops waiting once `is_abandoned` returns true; the
/// work itself ends when its fuel is used up. `left` counts abandoned renderings.
pub(super) fn with_stack_until<T: Send + 'static>(
    left: &Arc<AtomicUsize>,
    is_abandoned: &dyn Fn() -> bool,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<Option<T>, Error> {
    let overloaded = |message| Error::Overloaded { message };
    if left.load(Ordering::Relaxed) >= MAX_ABANDONED {
        return Err(overloaded(format!(
            "chat template: {MAX_ABANDONED} abandoned renderings still run; try again"
        )));
    }
    let (tell, told) = sync_channel(1);
    let state = Arc::default();
    let running = Running { state: Arc::clone(&state), left: Arc::clone(left) };
    let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK);
    let spawned = thread.spawn(move || {
        let _running = running;
        // The receiver may be gone.
        let _ = tell.send(work());
    });
    spawned.map_err(|error| {
        overloaded(format!("chat template: cannot start a thread to render it: {error}"))
    })?;
    loop {
        match told.recv_timeout(POLL_INTERVAL) {
            Ok(result) => return result.map(Some),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Defect {
                    message: "the chat template's renderer failed".into(),
                });
            }
            Err(RecvTimeoutError::Timeout) if is_abandoned() => {
                Running::abandon(&state, left);
                return Ok(None);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ChatTemplate;
    use super::*;
    use minijinja::context;

    /// A caller can abandon a rendering; at most `MAX_ABANDONED` abandoned ones run.
    #[test]
    fn renderings_can_be_abandoned() {
        let (release, left) = (Arc::new(Mutex::new(())), Arc::<AtomicUsize>::default());
        let held = release.lock().unwrap();
        let wait = || {
            let release = release.clone();
            move || {
                drop(release.lock());
                Ok(())
            }
        };
        for _ in 0..MAX_ABANDONED {
            assert!(with_stack_until(&left, &|| true, wait()).unwrap().is_none());
        }
        let refused = with_stack_until(&left, &|| false, || Ok(())).unwrap_err();
        assert!(matches!(refused, Error::Overloaded { .. }), "{refused}");
        drop(held);
        while left.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(POLL_INTERVAL);
        }
        assert!(with_stack_until(&left, &|| false, || Ok(())).unwrap().is_some());
        let panics =
            with_stack_until(&left, &|| false, || -> Result<(), Error> { panic!("a defect") });
        assert!(matches!(panics, Err(Error::Defect { .. })));
    }

    #[test]
    fn endless_templates_run_out_of_fuel() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = b %}{% endfor %}{% endfor %}";
        assert!(ChatTemplate::new(loops, None, None).unwrap().render(&[], true).is_err());
    }

    /// Instructions on long texts: the number of instructions is bounded regardless of the text
    /// length.
    #[test]
    fn comparisons_of_long_texts_are_bounded() {
        let long = "{% set x = 'a' * 700000 ~ 'x' %}{% set y = 'a' * 700000 ~ 'y' %}";
        let often = "{% for i in range(90000) %}{% for j in range(90000) %}";
        let end = "{% endfor %}{% endfor %}";
        let form = "{% set f = '%j' * 100000 %}";
        for source in [
            format!("{long}{often}{{% if x == y %}}{{% endif %}}{end}"),
            format!("{long}{often}{{% if 'b' in x %}}{{% endif %}}{end}"),
            format!("{long}{often}{{% if x.endswith('aax') %}}{{% endif %}}{end}"),
            format!("{long}{often}{{% if x[-1] == 'a' %}}{{% endif %}}{end}"),
            format!("{long}{often}{{% set z = y in [x] * 9000 %}}{end}"),
            format!("{form}{often}{{% set x = strftime_now(f) %}}{end}"),
        ] {
            let template = ChatTemplate::new(&source, None, None).unwrap();
            let error = template.render(&[], true).unwrap_err().to_string();
            assert!(error.contains("fuel"), "{source}: {error}");
        }
        let fuel = |text: usize| Fuel::new([&context! { content => "a".repeat(text) }]);
        let (none, few, many) = (fuel(0), fuel(80_000), fuel(8_000_000));
        let values = FUEL + 2 * FUEL_PER_VALUE;
        let name = "content".len() as u64;
        assert_eq!(none, Fuel { instructions: values, bytes: values + name });
        assert_eq!(few, Fuel { instructions: values + 10_000, bytes: values + name + 80_000 });
        assert_eq!(many, Fuel { instructions: values + MAX_TEXT_FUEL, bytes: MAX_FUEL });
    }

    /// Common idioms of real templates succeed for a message of two million bytes.
    #[test]
    fn long_messages_are_rendered() {
        let idioms = "{% for message in messages %}{% set content = message.content %}\
            {% if content.startswith('<tool>') and content.endswith('</tool>') %}{% endif %}\
            {% if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}\
            {{ '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}{% endfor %}";
        let json = "{% for message in messages %}{{ {'role': message.role, 'content': message.content} | tojson }}{% endfor %}";
        let template = |source| ChatTemplate::new(source, None, None).unwrap();
        for (template, bytes) in [
            (ChatTemplate::chatml(), 2_000_000),
            (ChatTemplate::llama3(), 2_000_000),
            (template(idioms), 1_000_000),
            (template(json), 1_000_000),
        ] {
            let messages = [
                super::super::Message::new("user", "word ".repeat(bytes / 5)),
                super::super::Message::new("assistant", "Yes."),
            ];
            assert!(template.render(&messages, true).unwrap().len() > bytes);
        }
    }

    /// Budgets suffice for a long conversation.
    #[test]
    fn long_conversations_are_rendered() {
        let tool = crate::Tool::from_json(
            r#"{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}"#,
        )
        .unwrap();
        let tools = vec![tool; 128];
        let (short, long) = ("What now?", "word ".repeat(100_000));
        let messages: Vec<_> = (0..2000)
            .map(|at| {
                let role = if at % 2 == 0 { "user" } else { "assistant" };
                super::super::Message::new(role, if at == 7 { &long } else { short })
            })
            .collect();
        for template in [ChatTemplate::chatml(), ChatTemplate::llama3()] {
            let text = template.render_with_tools(&messages, &tools, true).unwrap();
            assert!(text.len() > long.len() + 2000 * short.len());
        }
    }

    /// Doubling a text consumes fuel for its length.
    #[test]
    fn memory_of_templates_is_bounded() {
        let double = "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
        for source in [
            double,
            "{{ 'a' * 100000000000 }}",
            "{{ '%99999999999d'|format(1) }}",
            "{{ '{:>60000000000}'.format(1) }}",
            "{{ '{0[a]:\u{10ffff}^+#060000000000}'.format({'a': 1}) }}",
            "{{ '{:.60000000000f}'.format(1.5) }}",
            "{{ ('{0}' * 60000).format('a' * 4000000) }}",
        ] {
            let template = ChatTemplate::new(source, None, None).unwrap();
            assert!(template.render(&[], true).is_err(), "{source}");
        }
        // The formatter of an integer would panic.
        for source in ["{{ '{:.70000f}'.format(1) }}", "{{ '%.70000f'|format(1) }}"] {
            let error = ChatTemplate::new(source, None, None).unwrap().render(&[], true);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("is wider than 65535"), "{source}: {error}");
        }
        // Each is written with 309 digits.
        let long = "{{ ('{0:f}' * 100000).format(1e308) }}";
        let long = ChatTemplate::new(long, None, None).unwrap();
        assert!(long.render(&[], true).unwrap_err().to_string().contains("fuel"));
        let narrow = "{{ '{:>4} of {}, {:.2f}'.format(1, 'a', 0.5) }}";
        let narrow = ChatTemplate::new(narrow, None, None).unwrap();
        assert_eq!(narrow.render(&[], true).unwrap(), "   1 of a, 0.50");
        // Digits outside of fields cost nothing.
        let dated = "{{ 'Today: 20260101. 1:99999999 {}'.format('a') }}";
        let dated = ChatTemplate::new(dated, None, None).unwrap();
        assert_eq!(dated.render(&[], true).unwrap(), "Today: 20260101. 1:99999999 a");
    }

    /// Values that contain themselves twice, repeatedly, would be written exponentially long.
    #[test]
    fn exponential_values_are_rejected() {
        let double = "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
        for show in [
            "ns.x|tojson",
            "ns.x|tojson(indent=2)",
            "{'a': ns.x}|tojson",
            "ns.x",
            "{'a': ns.x}",
            "ns.x ~ ''",
            "'' ~ ns.x",
            "ns.x|string",
            "ns.x|join",
            "''.join(ns.x)",
            "'%s'|format(ns.x)",
            "ns.x == [ns.x]",
        ] {
            let template =
                ChatTemplate::new(&format!("{double}{{{{ {show} }}}}"), None, None).unwrap();
            assert!(template.render(&[], true).is_err(), "{show}");
        }
        // Such values are charged when created, because comparisons, for example, visit all of
        // them.
        for make in [
            "[ns.x, ns.x]",
            "(ns.x, ns.x)",
            "ns.x, ns.x",
            "{'a': ns.x, 'b': [ns.x]}",
            "dict(a=ns.x, b=ns.x)",
            "namespace(a=ns.x, b=ns.x)",
            "[ns.x] * 2",
            "[ns.x] + [ns.x]",
            "[ns.x] | batch(2, ns.x) | list",
        ] {
            let source = format!(
                "{{% set ns = namespace(x=[1]) %}}{{% for i in range(60) %}}{{% set ns.x = {make} %}}{{% endfor %}}"
            );
            let template = ChatTemplate::new(&source, None, None).unwrap();
            assert!(template.render(&[], true).is_err(), "{make}");
        }
        let parted =
            "{% set x = 'x' * 1000000 %}{{ range(10000)|list|tojson(separators=('', x)) }}";
        let parted = ChatTemplate::new(parted, None, None).unwrap();
        assert!(parted.render(&[], true).is_ok(), "what is not written takes nothing");
        let deep = "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}";
        assert!(ChatTemplate::new(deep, None, None).unwrap().render(&[], true).is_err());
        let often = "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% set y = x|tojson %}{% endfor %}";
        assert!(ChatTemplate::new(often, None, None).unwrap().render(&[], true).is_err());
    }

    /// Deeply nested templates succeed or fail, but never overflow the stack.
    #[test]
    fn deep_templates_do_not_overflow_the_stack() {
        let room = MAX_TEMPLATE - 64;
        let (minus, or) = ("-".repeat(room), "1 ~ ".repeat(2000));
        let filters = "|abs".repeat(2000);
        for source in [
            format!("{{{{ {minus}1 }}}}"),
            format!("{{{{ {or}1 }}}}"),
            format!("{{{{ 1{filters} }}}}"),
            format!("{{{{ {}1{} }}}}", "(".repeat(room / 2), ")".repeat(room / 2)),
            "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}".into(),
            format!("{{{{ {}1{} }}}}", "[".repeat(room / 2), "]".repeat(room / 2)),
            format!("{{{{ {}1{} }}}}", "~[".repeat(room / 3), "]".repeat(room / 3)),
            "{% set ns = namespace(x=[1]) %}{% for a in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}".into(),
            "{% set ns = namespace(x=[1]) %}{% for a in range(9000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x == ns.x }}{{ ns.x }}".into(),
        ] {
            let _ = ChatTemplate::new(&source, None, None)
                .and_then(|template| template.render(&[], true));
        }
        let joined = format!("{{{{ {}1 }}}}", "1~".repeat(room / 2));
        for long in [" ".repeat(MAX_TEMPLATE + 1), joined] {
            assert!(ChatTemplate::new(&long, None, None).is_err());
        }
    }
}
