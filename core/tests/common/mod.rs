//! Shared helpers of core's integration tests: fixtures, aligned memory, stand-in operators.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod backend;
pub mod builder;
pub mod kernels;

use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use torchlet_core::{
    ArenaBlock, BundledProgram, DataLoader, DataMap, Limits, LoadOptions, MemoryNeeds, Method,
    MethodMemory, Program, ReadError, Registry, ValueMeta, ValueRef,
};

/// Interval of the bytes that tests change. A sample under Miri, which is a thousand times slower.
pub const EVERY: usize = if cfg!(miri) { 997 } else { 1 };

/// Maximum number of files that tests take from a list.
pub const FILES: usize = if cfg!(miri) { 1 } else { usize::MAX };

/// Files for Miri: small ones, since loading and running one takes half a minute.
const MIRI_FILES: &[&str] = &[
    "digits/digits_external.bpte",
    "formats/weights_align_16.bpte",
    "programs/masked_select.bpte",
];

/// Maximum number of changes to the same position.
pub const CHANGES: usize = if cfg!(miri) { 2 } else { usize::MAX };

/// Path of the fixtures.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

/// Loads a fixture, aligned for every dtype.
pub fn fixture(path: &str) -> Aligned {
    let path = fixtures().join(path);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Aligned::from(&bytes[..])
}

/// Loads the program of a fixture, extracted from its bundle if necessary.
pub fn program_of(path: &str) -> Aligned {
    let file = fixture(path);
    if path.ends_with(".bpte") {
        let bundle = BundledProgram::from_bytes(file.bytes()).unwrap();
        return Aligned::from(bundle.program().unwrap());
    }
    file
}

/// All fixtures in a folder with this file extension.
pub fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir(fixtures().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(ending))
        .map(|name| format!("{folder}/{name}"))
        .filter(|file| !cfg!(miri) || MIRI_FILES.contains(&file.as_str()))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no {ending} in {folder}");
    found
}

/// Bytes aligned to 16.
#[derive(Clone, Default)]
pub struct Aligned {
    blocks: Vec<Block>,
    len: usize,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(16))]
struct Block([u8; 16]);

impl Aligned {
    /// Zeroed bytes.
    pub fn new(len: usize) -> Self {
        Aligned { blocks: vec![Block([0; 16]); len.div_ceil(16)], len }
    }

    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.blocks)[..self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..self.len]
    }
}

impl From<&[u8]> for Aligned {
    fn from(bytes: &[u8]) -> Self {
        let mut aligned = Aligned::new(bytes.len());
        aligned.bytes_mut().copy_from_slice(bytes);
        aligned
    }
}

/// Uninitialised memory for arenas.
pub struct Arena {
    blocks: Vec<ArenaBlock>,
    len: usize,
}

impl Arena {
    pub fn new(len: usize) -> Self {
        Arena { blocks: vec![ArenaBlock::UNINIT; len.div_ceil(16)], len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut ArenaBlock::bytes(&mut self.blocks)[..self.len]
    }
}

/// Storage that can be read but not borrowed from, like SPI flash.
pub struct ReadOnly<'a>(pub &'a [u8]);

impl DataLoader for ReadOnly<'_> {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let error = ReadError { offset, len: into.len() };
        let start = usize::try_from(offset).map_err(|_| error)?;
        let end = start.checked_add(into.len()).ok_or(error)?;
        into.copy_from_slice(self.0.get(start..end).ok_or(error)?);
        Ok(())
    }
}

/// Storage that lends its bytes.
pub struct Lending<'a>(pub &'a [u8]);

impl DataLoader for Lending<'_> {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        ReadOnly(self.0).read(offset, into)
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.0.get(start..start.checked_add(len)?)
    }
}

/// More memory than any fixture needs; tests refuse requests beyond it.
const MEMORY_LIMIT: usize = 1 << 20;

/// Memory of a method, with exactly the sizes that it reports.
pub struct Memory {
    pub needs: MemoryNeeds,
    pub arena: Arena,
    pub scratch: Aligned,
    pub planned: Vec<Aligned>,
    pub interface: Vec<Aligned>,
}

/// Limits that keep the requests of damaged files within the memory of the tests.
pub fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.planned_bytes = MEMORY_LIMIT as u64;
    limits.backward_jumps = 50;
    limits
}

/// Memory needs of a method.
pub fn needs<'p>(
    program: &Program<'p>,
    name: &str,
    registry: &Registry<'p>,
    data: &'p [DataMap<'p>],
) -> Result<MemoryNeeds, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let meta = program.method_meta(name).map_err(|error| text(&error))?;
    let options = LoadOptions::default().with_data(data).with_limits(limits());
    let bytes = meta.table_bytes(&options.limits).map_err(|error| text(&error))?;
    if bytes > MEMORY_LIMIT {
        return Err("asks for more than the tests' limit".to_owned());
    }
    let mut tables = Arena::new(bytes);
    let prepared = meta.prepare(tables.bytes_mut(), registry, options);
    prepared.map(|prepared| prepared.needs()).map_err(|error| text(&error))
}

impl Memory {
    /// Allocates memory for a method; fails for sizes that no test program has.
    pub fn of<'p>(
        program: &Program<'p>,
        name: &str,
        registry: &Registry<'p>,
        data: &'p [DataMap<'p>],
    ) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let meta = program.method_meta(name).map_err(|error| text(&error))?;
        let needs = needs(program, name, registry, data)?;
        let mut left = MEMORY_LIMIT;
        let mut take = |bytes: usize| {
            left = left.checked_sub(bytes).ok_or("asks for more than the tests' limit")?;
            Ok::<_, String>(bytes)
        };
        let planned = (0..meta.planned_buffer_count())
            .map(|index| take(meta.planned_buffer_size(index).map_err(|error| text(&error))?))
            .map(|bytes| bytes.map(Aligned::new))
            .collect::<Result<_, _>>()?;
        let mut interface = Vec::new();
        for index in 0..meta.input_count().min(1000) {
            interface.push(Aligned::new(take(nbytes(meta.input(index)))?));
        }
        for index in 0..meta.output_count().min(1000) {
            interface.push(Aligned::new(take(nbytes(meta.output(index)))?));
        }
        let arena = Arena::new(take(needs.whole_arena())?);
        Ok(Memory { needs, arena, scratch: Aligned::new(take(needs.scratch)?), planned, interface })
    }

    /// Allocates other memory of the same sizes.
    pub fn again(&self) -> Self {
        let same = |list: &[Aligned]| list.iter().map(|memory| Aligned::new(memory.len)).collect();
        Memory {
            needs: self.needs,
            arena: Arena::new(self.arena.len),
            scratch: Aligned::new(self.scratch.len),
            planned: same(&self.planned),
            interface: same(&self.interface),
        }
    }

    /// Loads the method.
    pub fn load<'m>(
        &'m mut self,
        program: &Program<'m>,
        name: &str,
        registry: &Registry<'m>,
        options: LoadOptions<'m>,
    ) -> Result<Method<'m>, String> {
        let mut planned: Vec<&'m mut [u8]> =
            self.planned.iter_mut().map(|buffer| buffer.bytes_mut()).collect();
        let memory = MethodMemory {
            arena: self.arena.bytes_mut(),
            planned: &mut planned,
            scratch: self.scratch.bytes_mut(),
        };
        let mut method = program
            .load_method(name, registry, memory, options)
            .map_err(|error| error.to_string())?;
        let mut interface = self.interface.iter_mut();
        let mut next =
            || interface.next().map_or(&mut [] as &mut [u8], |memory| memory.bytes_mut());
        for index in 0..method.input_count().min(1000) {
            let memory = next();
            if method.input_is_unbound(index) {
                method.bind_input(index, memory).map_err(|error| error.to_string())?;
            }
        }
        for index in 0..method.output_count().min(1000) {
            let memory = next();
            if method.output_is_unbound(index) {
                method.bind_output(index, memory).map_err(|error| error.to_string())?;
            }
        }
        Ok(method)
    }
}

fn nbytes(value: Result<Option<ValueMeta<'_>>, torchlet_core::ProgramError>) -> usize {
    match value {
        Ok(Some(ValueMeta::Tensor(tensor))) if !tensor.planned && !tensor.constant => {
            tensor.info.nbytes()
        }
        _ => 0,
    }
}

/// Loads every method of a program, runs it with small input values, twice with a reset between,
/// and returns the bytes of all outputs. An error is a valid result.
pub fn exercise<'p>(
    program: &Program<'p>,
    registry: &Registry<'p>,
    data: &'p [DataMap<'p>],
) -> Result<Vec<u8>, String> {
    let mut results = Vec::new();
    let names: Vec<String> = program
        .method_names()
        .map_err(|error| error.to_string())?
        .take(10)
        .map(|name| name.map(str::to_owned).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    for name in &names {
        describe(program, name);
        let mut memory = Memory::of(program, name, registry, data)?;
        let options = LoadOptions::default().with_data(data).with_limits(limits());
        let mut method = memory.load(program, name, registry, options)?;
        for round in 0..2 {
            fill_inputs(&mut method);
            method.execute().map_err(|error| error.to_string())?;
            let before = results.len();
            for index in 0..method.output_count().min(1000) {
                if let Ok(ValueRef::Tensor(tensor)) = method.output(index) {
                    results.extend_from_slice(tensor.bytes());
                }
            }
            if round == 0 {
                method.reset().map_err(|error| error.to_string())?;
            } else {
                let half = before - (results.len() - before);
                assert_eq!(results[half..before], results[before..], "reset left something");
            }
        }
    }
    Ok(results)
}

/// Fills every input tensor with small values.
pub fn fill_inputs(method: &mut Method<'_>) {
    for index in 0..method.input_count().min(1000) {
        if let Ok(mut tensor) = method.input_mut(index) {
            if let Ok(elements) = tensor.data_mut::<f32>() {
                for (position, element) in elements.iter_mut().enumerate() {
                    *element = (position % 7) as f32 * 0.25 - 0.5;
                }
            } else {
                for (position, byte) in tensor.bytes_mut().iter_mut().enumerate() {
                    *byte = u8::from(position % 8 == 0);
                }
            }
        }
    }
}

/// Calls every query that does not load the method.
fn describe(program: &Program<'_>, name: &str) {
    let Ok(meta) = program.method_meta(name) else { return };
    for index in 0..meta.value_count().min(1000) {
        let _ = meta.value_meta(index).map(|value| format!("{value:?}"));
    }
    for index in 0..meta.input_count().min(1000) + 1 {
        let _ = meta.input(index);
        let _ = meta.output(index);
    }
    let _ = meta.instruction_names().map(|names| names.take(1000).filter(Result::is_err).count());
    let _ = meta.operators().take(1000).filter(Result::is_err).count();
    for index in 0..meta.delegate_count().min(1000) + 1 {
        if let Ok(delegate) = meta.delegate(index, &[]) {
            let _ = delegate.compile_specs().take(1000).count();
            let _ = delegate.named_data("some");
        }
    }
    let _ = program.data_names().map(|names| names.take(1000).filter(Result::is_err).count());
}

/// Random number generator (xorshift), deterministic so that failures are reproducible.
pub struct MutationRng(u64);

impl MutationRng {
    pub fn new(seed: u64) -> Self {
        MutationRng(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A random number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Makes one random change: a byte, a word, a copied range, or a zeroed range.
    pub fn damage(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len());
        let word = at / 4 * 4;
        match self.below(5) {
            0 => bytes[at] = self.next() as u8,
            1 => bytes[at] ^= 1 << self.below(8),
            2 if word + 4 <= bytes.len() => {
                let number = self.next() as u32 >> self.below(32);
                bytes[word..word + 4].copy_from_slice(&number.to_le_bytes());
            }
            3 => {
                let len = self.below(16).min(bytes.len() - at);
                let from = self.below(bytes.len() - len);
                bytes.copy_within(from..from + len, at);
            }
            _ => {
                let len = self.below(8).min(bytes.len() - at);
                bytes[at..at + len].fill(0);
            }
        }
    }
}
