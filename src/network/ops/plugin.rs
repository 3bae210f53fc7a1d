//! Plugin.

use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::array::{Array, Buffer, bytes_of};
use crate::network::attr::{Attr, Attrs, Preset, attr};
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, Purity, TensorType, Uint64};
use crate::network::plugin::{Device, Held, Run, Shaped, blame};
use std::collections::HashSet;
use std::sync::Arc;

/// What somebody outside does.
pub static DEF: OpDef = OpDef {
    name: "Plugin",
    doc: "What a plugin does: its class gives the types of the outputs and runs it (docs/plugins.md)",
    inputs: &["inputs*"],
    attrs: &[attr("plugin", Preset::RequiredPlugin, "the plugin, with its fields")],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    purity: Purity::Opaque,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

/// The plugin of a layer, if it is one.
pub fn of(layer: &Layer) -> Option<&Held> {
    match layer.attrs.get("plugin") {
        Some(Attr::Plugin(held)) if layer.op == &DEF => Some(held),
        _ => None,
    }
}

fn held(attrs: &Attrs) -> Result<&Held> {
    match attrs.get("plugin") {
        Some(Attr::Plugin(held)) => Ok(held),
        _ => Err(Error::internal("a Plugin layer holds no plugin")),
    }
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let held = held(infer.attrs)?;
    let blamed = blame(held.identity());
    let inputs: Option<Vec<TensorType>> = infer.inputs.iter().cloned().collect();
    let inputs = inputs.ok_or_else(|| blamed(Error::invalid("an input is left out")))?;
    let read = inputs.len().checked_sub(held.shape_inputs());
    let read = read.ok_or_else(|| blamed(Error::invalid("there are fewer inputs than shape inputs")))?;
    if let Some(odd) = inputs[read..].iter().find(|ty| ty.value.is_none()) {
        return Err(blamed(
            Error::unsupported("a shape input depends on data")
                .expected("integers that constants and shapes determine")
                .got(odd.describe()),
        ));
    }
    let plugin = held.plugin(infer.layer)?;
    let outputs = plugin.infer(&inputs, held.shape_inputs()).map_err(&blamed)?;
    check(&inputs, &outputs).map_err(&blamed)?;
    let types = [&inputs[..read], &outputs].concat();
    for (at, ty) in types.iter().enumerate() {
        if !plugin.supports(at, &types, read).map_err(&blamed)? {
            let (what, number) = if at < read {
                ("input", at)
            } else {
                ("output", at - read)
            };
            return Err(blamed(
                Error::dtype(format!(
                    "supports_format_combination refuses the element type of {what} {number}"
                ))
                .got(ty.describe())
                .hint("insert a Cast before the layer, or let the plugin support this type, row-major"),
            ));
        }
    }
    Ok(outputs)
}

/// Whether outputs can be had of inputs.
fn check(inputs: &[TensorType], outputs: &[TensorType]) -> Result<()> {
    if outputs.is_empty() {
        return Err(Error::shape("it gives no outputs").expected("at least one"));
    }
    let dims = |ty: &TensorType| {
        let dims = ty.shape.iter().chain(ty.value.iter().flatten());
        dims.flat_map(Dim::symbols).collect::<Vec<_>>()
    };
    let known: HashSet<Arc<str>> = inputs.iter().flat_map(dims).collect();
    for (number, ty) in outputs.iter().enumerate() {
        if let Some(unknown) = dims(ty).into_iter().find(|symbol| !known.contains(symbol)) {
            return Err(Error::shape(format!(
                "the shape of output {number} has a dimension that no input has"
            ))
            .expected("expressions of the dimensions of the inputs")
            .got(format!("{unknown:?} in {}", ty.describe()))
            .hint("outputs whose size depends on data are not supported: give the greatest size and a count"));
        }
        ty.check_size()?;
    }
    Ok(())
}

/// Runs the plugin on the processor, where it can.
fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let held = held(e.attrs)?;
    let blamed = blame(held.identity());
    let plugin = held.plugin(DEF.name)?;
    if !plugin.devices().iter().any(|device| device == Device::Cpu.word()) {
        return Err(blamed(
            Error::unsupported("it does not run on the processor")
                .got(plugin.devices().join(", "))
                .hint("run an engine on a device that it runs on"),
        ));
    }
    let read = e.inputs.len() - held.shape_inputs();
    let inputs = (0..read).map(|at| e.input(at)).collect::<Result<Vec<_>>>()?;
    let shaped = |dtype, shape: &[usize]| Shaped {
        dtype,
        shape: shape.to_vec(),
    };
    let from: Vec<_> = inputs.iter().map(|a| shaped(a.dtype(), a.shape())).collect();
    let to: Vec<_> = e.outputs.iter().map(|(dtype, shape)| shaped(*dtype, shape)).collect();
    let mut prepared = plugin.prepare(Device::Cpu, &from, &to).map_err(&blamed)?;
    let buffers = to.iter().map(|o| Buffer::try_zeroed(bytes_of(o.dtype, &o.shape)?));
    let buffers = buffers.collect::<Result<Vec<_>>>()?;
    let workspace = Buffer::try_zeroed(prepared.workspace())?;
    let call = Run {
        inputs: &inputs.iter().map(|a| a.bytes().as_ptr()).collect::<Vec<_>>(),
        outputs: &buffers.iter().map(Buffer::as_ptr).collect::<Vec<_>>(),
        workspace: workspace.as_ptr(),
        stream: std::ptr::null_mut(),
    };
    prepared.run(&call).map_err(&blamed)?;
    let arrays = to.into_iter().zip(buffers);
    arrays
        .map(|(o, buffer)| Array::new(o.dtype, o.shape, Arc::new(buffer), 0))
        .collect()
}
