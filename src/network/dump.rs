//! The network as text, one layer a line, for people and for tests.

use crate::network::attr::Attr;
use crate::network::{Layer, Network, Source, TensorId};
use std::fmt;

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs: Vec<_> = self
            .inputs
            .iter()
            .map(|&t| format!("%{}: {}", self[t].name, self[t].ty.describe()))
            .collect();
        writeln!(f, "network {:?} ({})", self.name, inputs.join(", "))?;
        for (symbol, range) in &self.symbols {
            writeln!(
                f,
                "  symbol {symbol} in {}..={}, opt {}",
                range.min, range.max, range.opt
            )?;
        }
        let order = self.order().unwrap_or_else(|_| self.layers.keys().copied().collect());
        order.into_iter().try_for_each(|id| self.write_layer(f, &self[id]))?;
        for guard in &self.guards {
            writeln!(f, "  guard {} == {} ({})", guard.left, guard.right, guard.reason)?;
        }
        let outputs: Vec<_> = self
            .outputs
            .iter()
            .map(|o| format!("{} = {}", o.name, self.mention(o.tensor)))
            .collect();
        writeln!(f, "  return {}", outputs.join(", "))
    }
}

impl Network {
    fn write_layer(&self, f: &mut fmt::Formatter<'_>, layer: &Layer) -> fmt::Result {
        let outputs: Vec<_> = layer
            .outputs
            .iter()
            .map(|&t| format!("%{}: {}", self[t].name, self[t].ty.describe()))
            .collect();
        let inputs: Vec<_> = layer
            .inputs
            .iter()
            .map(|t| t.map_or("none".into(), |t| self.mention(t)))
            .collect();
        let attrs: Vec<_> = layer
            .attrs
            .iter()
            .map(|(name, value)| format!("{name}={}", describe(value)))
            .collect();
        let attrs = if attrs.is_empty() {
            String::new()
        } else {
            format!(" {{{}}}", attrs.join(", "))
        };
        writeln!(
            f,
            "  {} = {}({}){attrs}",
            outputs.join(", "),
            layer.op.name,
            inputs.join(", ")
        )
    }

    fn mention(&self, id: TensorId) -> String {
        let tensor = &self[id];
        match &tensor.source {
            Source::Constant(c) if c.array.len() == 1 => format!("{}({})", tensor.ty.describe(), c.array.to_f64()[0]),
            Source::Constant(_) => format!("{}(...)", tensor.ty.describe()),
            Source::Symbolic => {
                let value: Vec<_> = tensor.ty.value.iter().flatten().map(|d| d.to_string()).collect();
                format!("[{}]", value.join(", "))
            }
            _ => format!("%{}", tensor.name),
        }
    }
}

/// An attribute as text.
pub(super) fn describe(attr: &Attr) -> String {
    match attr {
        Attr::Int(v) => v.to_string(),
        Attr::Float(v) => v.to_string(),
        Attr::Text(v) => v.clone(),
        Attr::Ints(v) => format!("{v:?}"),
        Attr::Floats(v) => format!("{v:?}"),
        Attr::Dims(v) => format!("[{}]", v.iter().map(|d| d.to_string()).collect::<Vec<_>>().join(", ")),
        Attr::Type(v) => v.to_string(),
        Attr::Attrs(v) => {
            let pairs = v.iter().map(|(name, value)| format!("{name}={}", describe(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        Attr::Plugin(v) => format!("{v:?}"),
        Attr::Body(v) => format!("network of {} layers", v.0.layer_count()),
    }
}
