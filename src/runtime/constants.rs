//! Memory that does not change between calls: constants, symbolic values, and constants brought to another layout or memory.

use crate::device::Memory;
use crate::error::{Error, Result};
use crate::network::Source;
use crate::network::array::Array;
use crate::network::dim::Binding;
use crate::plan::placement::{Home, Placement, is_ahead};
use crate::plan::program::Program;
use crate::plan::{Call, Request};
use crate::runtime::executable::Executable;
use crate::runtime::prepare::{create, finish};
use std::ffi::c_void;
use std::sync::Arc;

/// Memory that does not change between calls.
pub(super) enum Fixed {
    Array(Array),
    Memory(Arc<dyn Memory>),
}

impl Fixed {
    pub fn address(&self) -> *mut u8 {
        match self {
            Fixed::Array(array) => array.bytes().as_ptr().cast_mut(),
            Fixed::Memory(memory) => memory.address(),
        }
    }
}

/// The memory of every fixed slot: constants, symbolic values, and constants brought to another layout.
pub(super) fn fixed_memory(
    program: &Executable,
    places: &Placement,
    binding: &Binding,
    threads: usize,
) -> Result<Vec<Option<Fixed>>> {
    let mut fixed: Vec<Option<Fixed>> = program.slots.iter().map(|_| None).collect();
    for (i, slot) in program
        .slots
        .iter()
        .enumerate()
        .filter(|(i, _)| places.homes[*i] == Home::Fixed)
    {
        let tensor = &program.network[slot.tensor];
        fixed[i] = match &tensor.source {
            Source::Constant(constant) => Some(Fixed::Array(constant.array.clone())),
            Source::Symbolic => {
                let values = tensor
                    .ty
                    .value
                    .iter()
                    .flatten()
                    .map(|d| d.eval(binding))
                    .collect::<Result<Vec<_>>>()?;
                let shape = places.operands[i].shape.clone();
                Some(Fixed::Array(Array::from_i64(tensor.ty.dtype, shape, &values)?))
            }
            _ => None,
        };
    }
    for index in (0..program.commands.len()).filter(|&s| is_ahead(program, s)) {
        let (input, output) = (program.commands[index].inputs[0], program.commands[index].outputs[0]);
        let source = fixed[input]
            .as_ref()
            .map(Fixed::address)
            .ok_or_else(|| Error::internal("a constant has no memory"))?;
        let constant = matches!(
            program.network[program.slots[output].tensor].source,
            Source::Constant(_)
        );
        let make = || reorder_ahead(program, index, places, binding, threads, source);
        let memory = match constant {
            true => program.constant(output, make)?,
            false => make()?,
        };
        fixed[output] = Some(Fixed::Memory(memory));
    }
    Ok(fixed)
}

/// Runs a command on a constant, once for all calls.
fn reorder_ahead(
    program: &Program,
    command: usize,
    places: &Placement,
    binding: &Binding,
    threads: usize,
    source: *const u8,
) -> Result<Arc<dyn Memory>> {
    let command = &program.commands[command];
    let (inputs, outputs) = (
        [places.operands[command.inputs[0]].clone()],
        [places.operands[command.outputs[0]].clone()],
    );
    let request = Request {
        form: &command.form,
        inputs: &inputs,
        outputs: &outputs,
        binding,
        opt: &program.opt,
        threads,
    };
    let owner = program.provider_of(program.slots[command.outputs[0]].space)?;
    let target: Arc<dyn Memory> = Arc::from(owner.device().allocate(outputs[0].bytes())?);
    let provider = &program.providers[command.provider];
    let mut instance = finish(program, command, create(program, command, &request)?, threads)?;
    let workspace = provider.device().allocate(instance.workspace)?;
    let stream = provider.device().stream()?;
    let (from, to, raw) = (source as usize, target.address() as usize, stream.raw() as usize);
    provider.run(threads, &mut || {
        let call = Call {
            inputs: &[from as *const u8],
            outputs: &[to as *mut u8],
            workspace: workspace.address(),
            stream: raw as *mut c_void,
        };
        instance.launch(&call)
    })?;
    stream.synchronize()?;
    Ok(target)
}
