//! Plugins that are neither Python's nor C++'s: the traits by themselves, from the registry to an engine file and back.

use neurenix::context::ExecutionContext;
use neurenix::engine::{Engine, config::BuilderConfig};
use neurenix::error::{Error, ErrorKind, Result};
use neurenix::network::array::Array;
use neurenix::network::attr::{Attr, attrs};
use neurenix::network::dtype::DType;
use neurenix::network::op::TensorType;
use neurenix::network::plugin::{
    Creator, Device, Field, FieldKind, Fields, Held, Identity, Phase, Plugin, Prepared, Run, Shaped, registry,
};
use neurenix::network::{Network, ops};
use neurenix::plan::Provider;
use neurenix::providers::cpu::Cpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Adds a number to each element; gives a second output with how many columns there are.
struct Plus {
    number: f32,
}

struct PlusCreator {
    version: &'static str,
    loaded: Arc<AtomicUsize>,
}

struct PlusReady {
    number: f32,
    elements: usize,
    columns: i64,
}

fn identity(version: &str) -> Identity {
    Identity {
        name: "Plus".into(),
        version: version.into(),
        namespace: "rust".into(),
    }
}

impl Creator for PlusCreator {
    fn identity(&self) -> Identity {
        identity(self.version)
    }

    fn create(&self, layer: &str, fields: &Fields, phase: Phase) -> Result<Arc<dyn Plugin>> {
        assert_eq!(layer, "plus");
        self.loaded
            .fetch_add(usize::from(phase == Phase::Runtime), Ordering::Relaxed);
        let field = fields
            .get("number")
            .ok_or_else(|| Error::invalid("a number is missing"))?;
        assert_eq!(
            (field.kind(), field.shape()),
            (FieldKind::Elements(DType::Float32), &[][..])
        );
        let number = f32::from_ne_bytes(field.data().try_into().unwrap());
        Ok(Arc::new(Plus { number }))
    }
}

impl Plugin for Plus {
    fn identity(&self) -> Identity {
        identity("1")
    }

    fn fields(&self) -> Result<Fields> {
        let kind = FieldKind::Elements(DType::Float32);
        let field = Field::new(kind, vec![], self.number.to_ne_bytes().to_vec())?;
        Ok(Fields::from([("number".into(), field)]))
    }

    fn infer(&self, inputs: &[TensorType], shape_inputs: usize) -> Result<Vec<TensorType>> {
        assert_eq!(shape_inputs, 0);
        let columns = TensorType::new(DType::Int64, vec![]);
        Ok(vec![TensorType::new(inputs[0].dtype, inputs[0].shape.clone()), columns])
    }

    fn supports(&self, at: usize, types: &[TensorType], inputs: usize) -> Result<bool> {
        assert_eq!((inputs, types.len()), (1, 3));
        Ok(types[at].dtype == if at == 2 { DType::Int64 } else { DType::Float32 })
    }

    fn devices(&self) -> Vec<String> {
        vec![Device::Cpu.word().into()]
    }

    fn prepare(&self, device: Device, inputs: &[Shaped], outputs: &[Shaped]) -> Result<Box<dyn Prepared>> {
        assert_eq!((device, &inputs[0]), (Device::Cpu, &outputs[0]));
        Ok(Box::new(PlusReady {
            number: self.number,
            elements: inputs[0].shape.iter().product(),
            columns: inputs[0].shape[1] as i64,
        }))
    }
}

impl Prepared for PlusReady {
    fn workspace(&self) -> usize {
        4 * self.elements
    }

    fn run(&mut self, call: &Run) -> Result<()> {
        if self.elements == 21 {
            return Err(Error::new(ErrorKind::Plugin, "seven rows are too many"));
        }
        let (x, between) = (call.inputs[0].cast::<f32>(), call.workspace.cast::<f32>());
        let (y, columns) = (call.outputs[0].cast::<f32>(), call.outputs[1].cast::<i64>());
        for at in 0..self.elements {
            // SAFETY: the engine gives addresses of as many elements, and a workspace as large.
            unsafe {
                between.add(at).write(x.add(at).read() + self.number);
                y.add(at).write(between.add(at).read());
            }
        }
        // SAFETY: the second output is one number.
        unsafe { columns.write(self.columns) };
        Ok(())
    }
}

fn network(number: f32) -> Result<Network> {
    let mut network = Network::new("plus");
    let x = network.add_input("x", DType::Float32, vec!["n".parse()?, 3i64.into()])?;
    let kind = FieldKind::Elements(DType::Float32);
    let fields = Fields::from([(
        "number".into(),
        Field::new(kind, vec![], number.to_ne_bytes().to_vec())?,
    )]);
    let held = Held::create("plus", registry::resolve("Plus", None, "rust"), fields, 0)?;
    let plugin = attrs([("plugin", Attr::Plugin(held))]);
    let outputs = network.add_layer("plus", &ops::plugin::DEF, plugin, &[Some(x)])?;
    network.mark_output(outputs[0], "y")?;
    network.mark_output(outputs[1], "columns")?;
    Ok(network)
}

fn call(engine: &Arc<Engine>, rows: usize) -> Result<Vec<Array>> {
    let values: Vec<f64> = (0..3 * rows).map(|v| v as f64).collect();
    let x = Array::from_f64(DType::Float32, vec![rows, 3], &values)?;
    ExecutionContext::new(engine.clone()).evaluate(&[x])
}

/// One test, since there is one registry.
#[test]
fn a_plugin_from_the_registry_to_a_file_and_back() {
    let loaded = Arc::new(AtomicUsize::new(0));
    let creator = |version| {
        Arc::new(PlusCreator {
            version,
            loaded: loaded.clone(),
        })
    };
    assert!(
        network(0.5)
            .unwrap_err()
            .to_string()
            .contains("plugin Plus version 1 of \"rust\" is not registered")
    );
    registry::register(creator("1")).unwrap();
    assert!(registry::register(creator("1")).is_err());
    let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(Cpu::default())];
    let engine = Engine::build(network(0.5).unwrap(), BuilderConfig::default(), &providers).unwrap();
    assert_eq!(loaded.load(Ordering::Relaxed), 0);
    let path = std::env::temp_dir().join(format!("neurenix-plugin-{}.engine", std::process::id()));
    engine.save(&path).unwrap();
    let again = Engine::load(&path, BuilderConfig::default(), &providers).unwrap();
    assert!(loaded.load(Ordering::Relaxed) > 0);
    for engine in [Arc::new(engine), Arc::new(again)] {
        for rows in [2, 5, 2] {
            let found = call(&engine, rows).unwrap();
            let want: Vec<f64> = (0..3 * rows).map(|v| v as f64 + 0.5).collect();
            assert_eq!((found[0].to_f64(), found[1].to_i64()), (want, vec![3]));
        }
        let error = call(&engine, 7).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Plugin);
        let text = error.to_string();
        assert!(
            text.contains("plugin Plus version 1 of \"rust\": seven rows") && text.contains("layer: plus"),
            "{text}"
        );
        assert_eq!(call(&engine, 1).unwrap()[1].to_i64(), [3]);
    }
    assert!(registry::deregister(&identity("1")));
    let error = Engine::load(&path, BuilderConfig::default(), &providers).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    std::fs::remove_file(path).unwrap();
}
