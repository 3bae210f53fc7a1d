use super::table::{TABLE, slice};
use super::*;
use crate::network::dtype::DType;
use crate::network::plugin::{Creator, Device, Fields, Identity, Phase, Plugin, Shaped, registry};
use crate::providers::plugin::library::abi::{Answers, Tensor};
use std::ffi::c_void;
use std::sync::{Arc, Once};

/// Half of the columns, and nothing that runs.
struct Halves;

fn identity() -> Identity {
    Identity {
        name: "Halves".into(),
        version: "1".into(),
        namespace: "tests of hosted".into(),
    }
}

impl Plugin for Halves {
    fn identity(&self) -> Identity {
        identity()
    }

    fn fields(&self) -> Result<Fields> {
        Ok(Fields::new())
    }

    fn infer(&self, inputs: &[TensorType], _: usize) -> Result<Vec<TensorType>> {
        let [rows, columns] = &inputs[0].shape[..] else {
            return Err(Error::shape("it takes rows and columns"));
        };
        let half = columns.ceildiv(&2i64.into());
        Ok(vec![TensorType::new(DType::Float16, vec![rows.clone(), half])])
    }

    fn devices(&self) -> Vec<String> {
        vec![Device::Cuda(0).word().into()]
    }

    fn prepare(&self, _: Device, _: &[Shaped], _: &[Shaped]) -> Result<Box<dyn Prepared>> {
        Err(Error::unsupported("it never runs"))
    }
}

impl Creator for Halves {
    fn identity(&self) -> Identity {
        identity()
    }

    fn create(&self, _: &str, _: &Fields, _: Phase) -> Result<Arc<dyn Plugin>> {
        Ok(Arc::new(Halves))
    }
}

fn hosted() -> Hosted {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| registry::register(Arc::new(Halves)).unwrap());
    let dims = |names: [&str; 2]| names.map(|name| name.parse().unwrap()).to_vec();
    let input = TensorType::new(DType::Float32, dims(["rows", "columns"]));
    let outputs = Halves.infer(std::slice::from_ref(&input), 0).unwrap();
    let held = Held::new(Arc::new(Halves), 0).unwrap();
    Hosted::new("layer", held, vec![input], outputs).unwrap()
}

/// What the table answers.
#[derive(Default)]
struct Said(String, Vec<u8>);

extern "C" fn take(host: *mut c_void, what: i32, bytes: *const c_void, size: usize) {
    // SAFETY: `host` is that of `ask`, and the table gives bytes that hold during the call.
    let (said, bytes) = unsafe { (&mut *host.cast::<Said>(), slice(bytes.cast::<u8>(), size as i32)) };
    match what {
        abi::ANSWER_BYTES => said.1.extend(bytes),
        _ => said.0 += std::str::from_utf8(bytes).unwrap(),
    }
}

fn ask(call: impl FnOnce(*const Answers) -> i32) -> std::result::Result<Vec<u8>, String> {
    let mut said = Said::default();
    let answers = Answers {
        host: std::ptr::from_mut(&mut said).cast(),
        put: take,
    };
    match call(&answers) {
        abi::OK => Ok(said.1),
        _ => Err(said.0),
    }
}

fn made(bytes: &[u8]) -> std::result::Result<*mut c_void, String> {
    let mut plugin = std::ptr::null_mut();
    let (data, layer) = (bytes.as_ptr().cast(), c"layer".as_ptr());
    // SAFETY: the bytes hold during the call, and so does the variable.
    ask(|to| unsafe { (TABLE.deserialize)(0, layer, data, bytes.len(), &mut plugin, to) })?;
    Ok(plugin)
}

/// Dimensions as texts, as TensorRT has expressions.
extern "C" fn number(host: *mut c_void, value: i64, made: *mut Expr) -> i32 {
    text(host, value.to_string(), made)
}

extern "C" fn operation(host: *mut c_void, step: i32, a: u32, b: u32, made: *mut Expr) -> i32 {
    // SAFETY: the host is the list of texts.
    let texts = unsafe { &*host.cast::<Vec<String>>() };
    let both = format!("{step}({}, {})", texts[a as usize], texts[b as usize]);
    text(host, both, made)
}

fn text(host: *mut c_void, text: String, made: *mut Expr) -> i32 {
    // SAFETY: the host is the list of texts, and `made` a variable.
    let (texts, made) = unsafe { (&mut *host.cast::<Vec<String>>(), &mut *made) };
    texts.push(text);
    made.id = (texts.len() - 1) as u32;
    abi::OK
}

#[test]
fn a_plan_keeps_a_plugin_and_the_shapes_of_its_layer() {
    let mut first = hosted();
    let first: *mut c_void = std::ptr::from_mut(&mut first).cast();
    // SAFETY: the plugin is alive.
    let written = ask(|to| unsafe { (TABLE.serialize)(first, to) }).unwrap();
    let plugin = made(&written).unwrap();
    let mut texts = vec!["r".to_string(), "c".to_string()];
    let exprs = Exprs {
        host: std::ptr::from_mut(&mut texts).cast(),
        constant: number,
        operation,
    };
    let mut given = Shape {
        rank: 2,
        ..Shape::default()
    };
    given.dims[1].id = 1;
    let (mut shape, mut dtype) = (Shape::default(), -1);
    let types = [0];
    // SAFETY: the plugin and what it reads and writes are alive.
    ask(|to| unsafe { (TABLE.infer)(plugin, 0, &given, types.as_ptr(), 1, &exprs, &mut shape, &mut dtype, to) })
        .unwrap();
    let found: Vec<_> = shape.dims[..2]
        .iter()
        .map(|dim| texts[dim.id as usize].as_str())
        .collect();
    // Rounded up: kSUM is 0, kFLOOR_DIV 7; kHALF is 1.
    assert_eq!((found, shape.rank, dtype), (vec!["r", "7(0(1, c), 2)"], 2, 1));
    for (dtype, wanted) in [(0, 1), (1, 0)] {
        let tensor = Tensor {
            dtype,
            ..Tensor::default()
        };
        let mut supported = -1;
        let all = [tensor, tensor];
        // SAFETY: as above.
        ask(|to| unsafe { (TABLE.supports)(plugin, 0, all.as_ptr(), 1, 1, &mut supported, to) }).unwrap();
        assert_eq!(supported, wanted);
    }
    // SAFETY: nobody uses it any more.
    unsafe { (TABLE.destroy)(plugin) };
}

#[test]
fn what_fails_is_told_once_and_names_the_plugin() {
    assert!(made(b"{}").unwrap_err().contains("damaged"));
    let mut hosted = hosted();
    let plugin: *mut c_void = std::ptr::from_mut(&mut hosted).cast();
    let none = std::ptr::null_mut();
    let (inputs, outputs) = ([std::ptr::null()], [none]);
    // SAFETY: the plugin is alive, and has as many inputs and outputs.
    let failed = ask(|to| unsafe { (TABLE.enqueue)(plugin, inputs.as_ptr(), outputs.as_ptr(), none, none, to) });
    let wanted = "plugin Halves version 1 of \"tests of hosted\": it was told no shapes";
    assert_eq!(failed.unwrap_err(), wanted);
    assert!(take_error().is_some() && take_error().is_none());
}

#[test]
fn sizes_that_no_input_has_by_itself_are_refused() {
    let ty = |dims: &str| TensorType::new(DType::Float32, vec![dims.parse().unwrap()]);
    let held = Held::new(Arc::new(Halves), 0).unwrap();
    let refused = Hosted::new("layer", held, vec![ty("2*n")], vec![ty("n")]).unwrap_err();
    assert!(refused.message().contains("\"n\""), "{refused}");
}
