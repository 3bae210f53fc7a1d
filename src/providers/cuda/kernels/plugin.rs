//! Kernels that plugins bring, and plugins whose own code puts work into the stream.

use super::{Answer, Gpu};
use crate::error::{Error, ErrorKind, Result};
use crate::network::plugin::{Device, Identity, Number, Plugin, Prepared, Run, Shaped, Source, blame};
use crate::plan::{self, Call, Instance, Launcher};
use crate::providers::common::scope::Scope;
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::Arguments;
use crate::providers::plugin::{self, Port, shaped};
use std::sync::Arc;

/// Threads of a block, at most, and along x, y and z.
const MOST_THREADS: u32 = 1024;
const MOST_ALONG: [u32; 3] = [1024, 1024, 64];
/// Blocks along x, y and z, at most.
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// A plugin, by the kernel that it brings if it does.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let device = Device::Cuda(gpu.device.ordinal);
    match Port::of(scope, device)? {
        Some(port) if port.plugin.has_source() => {
            let gpu = gpu.clone();
            Ok(plugin::kernel(scope, port, move |port, request| {
                let (inputs, outputs) = (shaped(request.inputs), shaped(request.outputs));
                let launch = Launch::new(&gpu, port.plugin.source(&inputs, &outputs)?)?;
                Ok(launch.prepared(port.plugin.identity()))
            }))
        }
        Some(_) => plugin::offer(scope, device),
        None => Ok(vec![]),
    }
}

/// A plugin at concrete shapes, by the kernel that it brings if it does, for those who run it without an engine of ours.
///
/// # Errors
/// If it does not run there.
pub fn prepare(gpu: &Gpu, plugin: &dyn Plugin, inputs: &[Shaped], outputs: &[Shaped]) -> Result<Box<dyn Prepared>> {
    match plugin.has_source() {
        true => {
            let launch = Launch::new(gpu, plugin.source(inputs, outputs)?)?;
            launch.function.compile().map_err(refused(&launch.source.entry))?;
            Ok(Box::new(launch))
        }
        false => plugin.prepare(Device::Cuda(gpu.device.ordinal), inputs, outputs),
    }
}

struct Launch {
    function: EntryPoint,
    source: Source,
}

impl Launch {
    fn new(gpu: &Gpu, source: Source) -> Result<Self> {
        check(&source, gpu.device.shared_bytes)?;
        let function = gpu.compiler.brought(&source);
        Ok(Self { function, source })
    }

    /// It as a kernel of this plugin at concrete shapes.
    fn prepared(self, identity: Identity) -> plan::Prepared {
        let (entry, workspace) = (self.source.entry.clone(), self.source.workspace);
        let how = format!("the plugin's kernel {entry}");
        let prepared = compiled(
            [self.function.clone()],
            Instance::new(how, self).with_workspace(workspace),
        );
        prepared.map(move |made| made.map_err(refused(&entry)).map_err(blame(&identity)))
    }

    fn put(&self, call: &Run) -> Result<()> {
        let mut arguments = Arguments::default();
        call.inputs.iter().for_each(|&input| _ = arguments.address(input));
        call.outputs.iter().for_each(|&output| _ = arguments.address(output));
        if self.source.workspace > 0 {
            arguments.address(call.workspace);
        }
        for number in &self.source.numbers {
            match *number {
                Number::Int(number) => arguments.number(number),
                Number::Float(number) => arguments.float(number),
                Number::Double(number) => arguments.double(number),
            };
        }
        let Source { grid, block, .. } = self.source;
        // SAFETY: the plugin vouches that its kernel has these parameters, the caller for the operands.
        unsafe {
            self.function
                .compile()?
                .launch_blocks(grid, block, &arguments, call.stream)
        }
    }
}

/// What is said of code that somebody else wrote, and that does not compile.
fn refused(entry: &str) -> impl Fn(Error) -> Error + '_ {
    move |e| match e.kind() {
        ErrorKind::Internal => {
            let log = e.parts().find(|(part, _)| *part == "got").map_or("", |(_, log)| log);
            Error::new(ErrorKind::Plugin, "cuda_source does not compile").got(log)
        }
        _ => e.during(format!("the kernel {entry:?} of cuda_source")),
    }
}

/// Whether a GPU takes such a launch.
fn check(source: &Source, shared_bytes: usize) -> Result<()> {
    let refuse = |what: &str| Error::new(ErrorKind::Plugin, format!("cuda_source asks for {what}"));
    let fits = |(n, most): (&u32, u32)| (1..=most).contains(n);
    let along = source.block.iter().zip(MOST_ALONG).all(fits);
    if !along || source.block.iter().product::<u32>() > MOST_THREADS {
        return Err(refuse("a block that no GPU has")
            .expected(format!("1 to {MOST_THREADS} threads, {MOST_ALONG:?} along each axis"))
            .got(format!("{:?}", source.block)));
    }
    if !source.grid.iter().zip(MOST_BLOCKS).all(fits) {
        return Err(refuse("a grid that no GPU has")
            .expected(format!("1 to {MOST_BLOCKS:?} blocks"))
            .got(format!("{:?}", source.grid)));
    }
    if source.shared_bytes > shared_bytes {
        return Err(refuse("more shared memory than a block of this GPU has")
            .expected(format!("{shared_bytes} bytes"))
            .got(source.shared_bytes.to_string()));
    }
    Ok(())
}

impl Launcher for Launch {
    fn launch(&mut self, call: &Call) -> Result<()> {
        self.put(&Run {
            inputs: call.inputs,
            outputs: call.outputs,
            workspace: call.workspace,
            stream: call.stream,
        })
    }
}

impl Prepared for Launch {
    fn workspace(&self) -> usize {
        self.source.workspace
    }

    fn is_capturable(&self) -> bool {
        true
    }

    fn run(&mut self, call: &Run) -> Result<()> {
        self.put(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_that_no_gpu_takes_are_refused() {
        let source = |grid, block, shared_bytes| Source {
            code: String::new(),
            entry: "f".into(),
            include_paths: vec![],
            grid,
            block,
            shared_bytes,
            workspace: 0,
            numbers: vec![],
        };
        let refused = |source| check(&source, 1000).is_err();
        assert!(!refused(source([1, 1, 1], [32, 32, 1], 1000)));
        assert!(refused(source([0, 1, 1], [32, 1, 1], 0)));
        assert!(refused(source([1, 70_000, 1], [32, 1, 1], 0)));
        assert!(refused(source([1, 1, 1], [32, 33, 1], 0)));
        assert!(refused(source([1, 1, 1], [u32::MAX, u32::MAX, u32::MAX], 0)));
        assert!(refused(source([1, 1, 1], [1, 1, 1], 1001)));
    }
}
