//! An execution context: the state of one call at a time.

use crate::context::ready::Ready;
use crate::context::recent::Recent;
use crate::context::staged::StagedContext;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::network::Network;
use crate::network::array::{Array, Buffer};
use crate::network::dtype::DType;
use crate::plan::io_signature::IoSignature;
use crate::plan::program::Program;
use crate::runtime::bindings::{self, ArrayAddress};
use crate::runtime::context_memory::ContextMemory;
use crate::runtime::executable::Executable;
use crate::runtime::instance::{KernelTime, ProgramInstance, describe};
use crate::runtime::streams::CallerStream;
use std::sync::Arc;

/// dtype and shape of an array that crosses the boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The element type.
    pub dtype: DType,
    /// The extent of each dimension.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// The bytes of its elements.
    pub(super) fn bytes(&self) -> usize {
        self.dtype.size() * self.shape.iter().product::<usize>()
    }
}

/// How long a kernel took in a call.
#[derive(Debug, Clone)]
pub struct LayerTime {
    /// The layers that it ran.
    pub layers: String,
    /// Which implementation ran.
    pub implementation: String,
    /// Nanoseconds.
    pub nanoseconds: u64,
}

/// Instances for so many shapes are kept; the least recently used one goes first. One that a caller captured stays.
const KEPT_SHAPES: usize = 8;

/// The state of one call: instances of the engine's programs at the shapes that came lately, in one memory.
pub struct ExecutionContext {
    engine: Arc<Engine>,
    memory: ContextMemory,
    ready: Recent<Ready>,
    /// What runs an engine with stages, which has nothing ready.
    stages: Option<StagedContext>,
}

impl ExecutionContext {
    /// A context without any shape yet.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self::on(ContextMemory::default(), engine)
    }

    /// A context on the memory of others that never run while it does.
    pub(super) fn on(memory: ContextMemory, engine: Arc<Engine>) -> Self {
        let stages = (!engine.stages.is_empty()).then(|| StagedContext::new(&memory, &engine));
        Self {
            engine,
            memory,
            ready: Recent::default(),
            stages,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Whether the shapes of the outputs show only when the engine has run; [`ExecutionContext::evaluate`] alone runs it.
    pub fn is_staged(&self) -> bool {
        self.stages.is_some()
    }

    /// Runs on arrays and gives new ones.
    ///
    /// # Errors
    /// As [`ExecutionContext::prepare`] and [`ExecutionContext::run`].
    pub fn evaluate(&mut self, inputs: &[Array]) -> Result<Vec<Array>> {
        self.call(inputs, None)
    }

    /// Runs on arrays and gives the time of each kernel, and of each layer between stages.
    ///
    /// # Errors
    /// As [`ExecutionContext::evaluate`].
    pub fn timed(&mut self, inputs: &[Array]) -> Result<Vec<LayerTime>> {
        let mut times = vec![];
        self.call(inputs, Some(&mut times))?;
        Ok(times)
    }

    /// Runs on arrays; adds what took how long to `times`.
    pub(super) fn call(&mut self, inputs: &[Array], times: Option<&mut Vec<LayerTime>>) -> Result<Vec<Array>> {
        let types: Vec<_> = inputs.iter().map(|a| (a.dtype(), a.shape())).collect();
        if let Some(stages) = &mut self.stages {
            check_dtypes(&self.engine.network, &types)?;
            // Stages look at sizes by themselves.
            if self.engine.general.is_some() {
                let (engine, _) = self.engine.taking(&|i| types[i].1.to_vec())?;
                if !Arc::ptr_eq(&engine, &self.engine) {
                    return StagedContext::new(&self.memory, &engine).run(&engine, inputs, times);
                }
            }
            return stages.run(&self.engine, inputs, times);
        }
        let specs = self.prepare(&types)?.to_vec();
        let buffers = specs.iter().map(|spec| Buffer::try_zeroed(spec.bytes()));
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        let from: Vec<_> = inputs.iter().map(|a| ArrayAddress::host(a.bytes().as_ptr())).collect();
        let to: Vec<_> = buffers.iter().map(|b| ArrayAddress::host(b.as_ptr())).collect();
        // SAFETY: the arrays and the buffers live beyond the call, and have the prepared shapes.
        match times {
            None => unsafe { self.run(&from, &to, None) }?,
            Some(times) => times.extend(unsafe { self.profile_run(&from, &to) }?),
        }
        let outputs = specs.into_iter().zip(buffers);
        outputs
            .map(|(spec, buffer)| Array::new(spec.dtype, spec.shape, Arc::new(buffer), 0))
            .collect()
    }

    /// dtype and shape of each output for inputs of these dtypes and shapes, which are those of the next call. Nothing is made for it yet.
    ///
    /// # Errors
    /// If the network does not take them; names the input. If the shapes of the outputs depend on data.
    pub fn specs(&mut self, inputs: &[(DType, &[usize])]) -> Result<&[TensorSpec]> {
        if self.is_staged() {
            return Err(
                Error::unsupported("the shapes of the outputs depend on the data of the inputs")
                    .hint("run the model: the outputs come in their true shapes"),
            );
        }
        check_dtypes(&self.engine.network, inputs)?;
        if !self.select(inputs) {
            let ready = Ready::new(&self.engine, inputs)?;
            self.ready.insert(ready, KEPT_SHAPES, Ready::is_captured);
        }
        Ok(&self.current_shapes()?.outputs)
    }

    /// Brings what is kept for these shapes to the front; says whether there is any.
    fn select(&mut self, inputs: &[(DType, &[usize])]) -> bool {
        self.ready.select(|ready| ready.is_of(inputs))
    }

    /// Gets ready for inputs of these dtypes and shapes in the processor's memory, and gives dtype and shape of each output.
    ///
    /// # Errors
    /// As [`ExecutionContext::specs`]; if a kernel can't serve these shapes; names the layer.
    pub fn prepare(&mut self, inputs: &[(DType, &[usize])]) -> Result<&[TensorSpec]> {
        self.specs(inputs)?;
        self.make(
            |program| program.signature.is_host(),
            |program| IoSignature::host(&program.network),
        )?;
        Ok(&self.current_shapes()?.outputs)
    }

    /// Gets ready for arrays at these places, of the shapes that [`ExecutionContext::specs`] was last told.
    ///
    /// # Errors
    /// As [`ExecutionContext::prepare`].
    pub fn prepare_for(&mut self, inputs: &[ArrayAddress], outputs: &[ArrayAddress]) -> Result<()> {
        self.make(
            |program| bindings::takes(program, inputs, outputs),
            |program| bindings::signature(program, inputs, outputs),
        )
    }

    /// Brings the instance that fits the arrays of a call to the front, made where there is none.
    fn make(&mut self, fits: impl Fn(&Program) -> bool, signature: impl Fn(&Program) -> IoSignature) -> Result<()> {
        let memory = self.memory.clone();
        let ready = self.current_shapes()?;
        if ready.select(fits) {
            return Ok(());
        }
        let signature = signature(ready.program());
        match ready.make(&signature, &memory) {
            Err(e) if e.kind() == ErrorKind::Memory && self.drop_instances() => {
                memory.clear()?;
                self.current_shapes()?.make(&signature, &memory)
            }
            made => made,
        }
    }

    /// Drops what is only kept to be quick; says whether there was any.
    fn drop_instances(&mut self) -> bool {
        self.ready.iter_mut().map(Ready::clear).sum::<usize>() > 0
    }

    /// Brings the instance for these shapes that fits to the front; says whether there is one.
    fn select_both(&mut self, inputs: &[(DType, &[usize])], fits: impl Fn(&Program) -> bool) -> bool {
        self.select(inputs) && self.ready.first_mut().is_some_and(|ready| ready.select(fits))
    }

    /// Whether [`ExecutionContext::prepare`] would do next to nothing for these inputs.
    pub fn is_ready(&mut self, inputs: &[(DType, &[usize])]) -> bool {
        self.select_both(inputs, |program| program.signature.is_host())
    }

    /// Whether [`ExecutionContext::prepare_for`] would do next to nothing for arrays of these dtypes and shapes.
    pub fn is_ready_for(
        &mut self,
        types: &[(DType, &[usize])],
        inputs: &[ArrayAddress],
        outputs: &[ArrayAddress],
    ) -> bool {
        self.select_both(types, |program| bindings::takes(program, inputs, outputs))
    }

    /// Whether the shapes of the last [`ExecutionContext::specs`] lie inside a profile, and which.
    pub fn profile(&self) -> Option<(usize, bool)> {
        self.ready.first().map(|ready| ready.profile)
    }

    /// Bytes of activations and workspaces that a call at the shapes of the last [`ExecutionContext::prepare`] needs. The
    /// context holds as much as the largest of all calls that it has run.
    pub fn arena_bytes(&self) -> usize {
        self.ready.first().map_or(0, Ready::arena_bytes)
    }

    /// Runs on the arrays at these places, whose shapes [`ExecutionContext::specs`] was last told. With a stream of the
    /// caller's, and all arrays on its device, the work goes on there when the call has returned.
    ///
    /// # Safety
    /// Each place must be valid for the bytes of its input (to read) or output (to write) until the work is done,
    /// and aligned for its dtype.
    ///
    /// # Errors
    /// If a kernel fails, or an earlier call found something wrong with its data; names the layer. If an address that is
    /// said to be a device's is not; names the tensor.
    pub unsafe fn run(
        &mut self,
        inputs: &[ArrayAddress],
        outputs: &[ArrayAddress],
        caller: Option<&CallerStream>,
    ) -> Result<()> {
        self.prepare_for(inputs, outputs)?;
        self.current_shapes()?.check_last()?;
        // SAFETY: the caller vouches for the places.
        unsafe { self.current()?.run(inputs, outputs, caller) }
    }

    /// Waits for the work of calls that have returned.
    ///
    /// # Errors
    /// If some of it failed, or something was wrong with its data; names the layer.
    pub fn finish(&mut self) -> Result<()> {
        self.ready.iter_mut().try_for_each(Ready::finish)
    }

    /// Whether the caller captured a call into a graph of his own, and so may launch it again in this context's memory at any time.
    pub fn is_captured(&self) -> bool {
        self.ready.iter().any(Ready::is_captured)
    }

    /// As [`ExecutionContext::run`], timing each kernel.
    ///
    /// # Safety
    /// As [`ExecutionContext::run`].
    ///
    /// # Errors
    /// As [`ExecutionContext::run`].
    pub unsafe fn profile_run(&mut self, inputs: &[ArrayAddress], outputs: &[ArrayAddress]) -> Result<Vec<LayerTime>> {
        self.prepare_for(inputs, outputs)?;
        // SAFETY: the caller vouches for the addresses.
        let times = unsafe { self.current()?.profile(inputs, outputs) }?;
        let program = self.current()?.program().clone();
        let named = |time: KernelTime| LayerTime {
            layers: describe(&program, &program.commands[time.command]),
            implementation: time.implementation,
            nanoseconds: time.nanoseconds,
        };
        Ok(times.into_iter().map(named).collect())
    }

    /// The program that was built for the shapes that it was last told.
    pub(super) fn program(&mut self) -> Result<Arc<Executable>> {
        Ok(self.current_shapes()?.program().clone())
    }

    pub(super) fn current(&mut self) -> Result<&mut ProgramInstance> {
        self.current_shapes()?.current()
    }

    fn current_shapes(&mut self) -> Result<&mut Ready> {
        let ready = self.ready.first_mut();
        ready.ok_or_else(|| Error::internal("the context was not told any shapes"))
    }
}

fn check_dtypes(network: &Network, inputs: &[(DType, &[usize])]) -> Result<()> {
    if inputs.len() != network.inputs().len() {
        return Err(Error::invalid("the number of inputs differs")
            .expected(network.inputs().len().to_string())
            .got(inputs.len().to_string()));
    }
    for (&tensor, (dtype, _)) in network.inputs().iter().zip(inputs) {
        let want = network[tensor].ty.dtype;
        if *dtype != want {
            return Err(Error::dtype("input has the wrong dtype")
                .tensor(&network[tensor].name)
                .expected(want.name())
                .got(dtype.name())
                .hint(format!("pass x.astype({:?})", want.name())));
        }
    }
    Ok(())
}
