//! The programs of a context at shapes that came, one for each placement of the caller's arrays.

use crate::context::execution::TensorSpec;
use crate::context::recent::Recent;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::plan::io_signature::IoSignature;
use crate::plan::layout::Layout;
use crate::plan::program::{Program, operand};
use crate::runtime::context_memory::ContextMemory;
use crate::runtime::executable::Executable;
use crate::runtime::instance::ProgramInstance;
use std::sync::Arc;

/// Instances for so many placements of arrays are kept; the least recently used one goes first. One that a caller captured stays.
const KEPT: usize = 8;

/// What a context keeps for the shapes of a call.
pub(super) struct Ready {
    shapes: Vec<Vec<usize>>,
    /// dtype and shape of each output.
    pub outputs: Vec<TensorSpec>,
    /// The number of the profile, and whether the shapes lie inside.
    pub profile: (usize, bool),
    program: Arc<Executable>,
    binding: Binding,
    instances: Recent<ProgramInstance>,
}

impl Ready {
    /// What there is to know of a call before anything is made for it.
    ///
    /// # Errors
    /// If the network does not take these shapes; names the input.
    pub fn new(engine: &Arc<Engine>, inputs: &[(DType, &[usize])]) -> Result<Self> {
        let (taking, binding) = engine.taking(&|i| inputs[i].1.to_vec())?;
        let (plan, inside) = taking.plan_for(&binding);
        let program = taking.program((plan, inside)).clone();
        let network = &program.network;
        let sized = |tensor| operand(network, tensor, Layout::Plain, &binding);
        // What is too large is the input, before what follows from it.
        network.inputs().iter().try_for_each(|&input| sized(input).map(drop))?;
        let outputs = network.outputs().iter().map(|output| {
            let operand = sized(output.tensor)?;
            Ok(TensorSpec {
                dtype: operand.dtype,
                shape: operand.shape,
            })
        });
        // A plan of another engine is none of this one's profiles.
        let own = Arc::ptr_eq(&taking, engine);
        Ok(Self {
            shapes: inputs.iter().map(|(_, shape)| shape.to_vec()).collect(),
            outputs: outputs.collect::<Result<_>>()?,
            profile: if own { (plan, inside) } else { (0, false) },
            program,
            binding,
            instances: Recent::default(),
        })
    }

    /// Whether it is for inputs of these shapes.
    pub fn is_of(&self, inputs: &[(DType, &[usize])]) -> bool {
        let mut pairs = self.shapes.iter().zip(inputs);
        pairs.all(|(have, (_, want))| have.as_slice() == *want)
    }

    /// The program as it was built, for arrays of the processor.
    pub fn program(&self) -> &Arc<Executable> {
        &self.program
    }

    /// Brings the instance that fits the arrays of a call to the front; says whether there is one.
    pub fn select(&mut self, fits: impl Fn(&Program) -> bool) -> bool {
        self.instances.select(|instance| fits(instance.program()))
    }

    /// Makes the instance for a placement of arrays, in front of the others.
    ///
    /// # Errors
    /// If a kernel can't serve these shapes; names the layer.
    pub fn make(&mut self, signature: &IoSignature, memory: &ContextMemory) -> Result<()> {
        let program = self.program.for_arrays(signature)?;
        let made = ProgramInstance::new(program, &self.binding, memory)?;
        let leaving = self.instances.insert(made, KEPT, ProgramInstance::is_captured);
        // What its last call left is told by this one.
        leaving.into_iter().try_for_each(|mut instance| instance.finish())
    }

    /// Drops instances, but for those that a caller captured; says how many.
    pub fn clear(&mut self) -> usize {
        self.instances.retain(ProgramInstance::is_captured)
    }

    /// As [`ProgramInstance::check_last`], of all instances.
    ///
    /// # Errors
    /// As [`ProgramInstance::check_last`].
    pub fn check_last(&mut self) -> Result<()> {
        self.instances.iter_mut().try_for_each(ProgramInstance::check_last)
    }

    /// The instance in front.
    ///
    /// # Errors
    /// If none was made.
    pub fn current(&mut self) -> Result<&mut ProgramInstance> {
        let first = self.instances.first_mut();
        first.ok_or_else(|| Error::internal("nothing was made for the arrays of the call"))
    }

    /// As [`ProgramInstance::arena_bytes`] of the instance in front; 0 where none was made.
    pub fn arena_bytes(&self) -> usize {
        self.instances.first().map_or(0, ProgramInstance::arena_bytes)
    }

    /// As [`ProgramInstance::is_captured`], of any instance.
    pub fn is_captured(&self) -> bool {
        self.instances.iter().any(ProgramInstance::is_captured)
    }

    /// As [`ProgramInstance::finish`], of all instances.
    ///
    /// # Errors
    /// As [`ProgramInstance::finish`].
    pub fn finish(&mut self) -> Result<()> {
        self.instances.iter_mut().try_for_each(ProgramInstance::finish)
    }
}
