//! The `Tail` of kernels that multiply, written for the layers behind a product.

use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::{LayerId, Network, TensorId};
use crate::providers::common::epilogue::{Broadcast, Epilogue, Operand};
use crate::providers::cuda::kernels::pointwise::code::{self, Code, element};
use std::fmt::Write;

/// What is done with a product before all else.
#[derive(Debug, Clone, Copy)]
pub enum First {
    /// Each row is multiplied by a number of its own.
    Scales(TensorId),
    /// A number for each column is added.
    Bias(TensorId),
}

impl First {
    fn operand(self) -> Operand {
        let (tensor, broadcast) = match self {
            First::Scales(tensor) => (tensor, Broadcast::Row),
            First::Bias(tensor) => (tensor, Broadcast::Column),
        };
        Operand {
            tensor,
            broadcast,
            uniform: None,
        }
    }
}

/// What is done with each number of a product, as code.
pub struct Behind {
    /// What it reads beside the product.
    pub operands: Vec<Operand>,
    /// What it gives: the result, and what it stores besides.
    pub outputs: Vec<TensorId>,
    /// Declares `T0`, `Y0`, `X1`, ..., `Z1`, ... and `Tail`, whose fields are the operands in their order, behind them where it stores
    /// what it does besides, and behind these `Numbers` where there are some.
    pub text: String,
    /// The constants that `Numbers` holds.
    pub numbers: Vec<f32>,
    /// Bytes of the widest number that `warpgroup.cu` lays out for a result.
    pub width: usize,
    /// Whether results have 8 bits, as has what is read for each of them, and nothing is read for each column.
    pub is_bytes: bool,
}

impl Behind {
    /// The code of an epilogue.
    pub fn new(network: &Network, epilogue: &Epilogue) -> Self {
        let given = network[epilogue.result()].ty.dtype;
        Self::of(network, epilogue, code::of(network, &layers(epilogue)), given, None)
    }

    /// The same, whose result is not rounded: a float, for code of the same kernel.
    pub fn unrounded(network: &Network, epilogue: &Epilogue) -> Self {
        let code = code::of(network, &layers(epilogue));
        Self::of(network, epilogue, code, DType::Float32, None)
    }

    /// The same, with float32 constants as numbers. Rows of the product are multiplied with a scale of their own first, where there are
    /// such.
    pub fn numbered(network: &Network, epilogue: &Epilogue, scales: Option<TensorId>) -> Self {
        let given = network[epilogue.result()].ty.dtype;
        let code = code::numbered(network, &layers(epilogue));
        Self::of(network, epilogue, code, given, scales.map(First::Scales))
    }

    /// The same, behind a bias, which is the last operand.
    pub fn biased(network: &Network, epilogue: &Epilogue, bias: Option<TensorId>) -> Self {
        let given = network[epilogue.result()].ty.dtype;
        let code = code::of(network, &layers(epilogue));
        Self::of(network, epilogue, code, given, bias.map(First::Bias))
    }

    /// For each operand, whether it has a number for each element of the result.
    pub fn elements(&self) -> impl Iterator<Item = bool> {
        self.operands.iter().map(|operand| operand.broadcast == Broadcast::Full)
    }

    fn of(network: &Network, epilogue: &Epilogue, code: Code, given: DType, first: Option<First>) -> Self {
        let (product, output) = (epilogue.product, epilogue.result());
        let layers = layers(epilogue);
        // A code is not read as a number, to be encoded once more.
        let last = network.producer(output).filter(|_| !layers.is_empty());
        let result = match last.is_some_and(|(_, layer)| code.gives_codes(network, layer)) {
            true => "Y0",
            false => "Wide<Y0>::type",
        };
        let body = match layers.is_empty() {
            true => "    y0 = sum;\n".into(),
            false => code.body,
        };
        let operand = |&t: &TensorId| epilogue.operands.iter().find(|operand| operand.tensor == t).copied();
        let dtype = |t: TensorId| network[t].ty.dtype;
        let own = first.map(First::operand);
        let operands: Vec<Operand> = code.inputs.iter().filter_map(operand).chain(own).collect();
        let number = |tensor: TensorId| operands.iter().position(|operand| operand.tensor == tensor);
        let parameters = code.inputs.iter().enumerate().map(|(at, &tensor)| {
            let ty = number(tensor).map_or("T0".into(), |own| format!("X{}", own + 1));
            format!("const Wide<{ty}>::type x{at}")
        });
        let mut parameters: Vec<String> = parameters.collect();
        if layers.is_empty() {
            parameters.push("const Wide<T0>::type sum".into());
        }
        let numbers = code.numbers.unwrap_or_default();
        let mut text = typedef("T0", dtype(product)) + &typedef("Y0", given);
        _ = writeln!(text, "typedef {result} Result;");
        if !numbers.is_empty() {
            parameters.insert(0, "const Numbers& n".into());
            _ = writeln!(text, "struct Numbers {{ float at[{}]; }};", numbers.len());
        }
        for (at, operand) in operands.iter().enumerate() {
            text += &typedef(&format!("X{}", at + 1), dtype(operand.tensor));
        }
        let others = Others::new(epilogue, &code.outputs);
        text += &others.typedefs(dtype);
        _ = writeln!(
            text,
            "__device__ __forceinline__ void element({}, {}) {{\n{body}}}",
            others.declared().join(", "),
            parameters.join(", ")
        );
        let names: Vec<Option<usize>> = match layers.is_empty() {
            true => vec![None],
            false => code.inputs.iter().map(|&tensor| number(tensor)).collect(),
        };
        let sizes: Vec<usize> = operands.iter().map(|operand| dtype(operand.tensor).size()).collect();
        // Tiles of products of 16 bits have the shape for results of as many.
        let alike = dtype(product) == DType::Float32 || given.size() == 2;
        let laid = Laid::new(&operands, &sizes, given.size()).filter(|_| alike && others.is_empty());
        let width = laid.as_ref().map_or(2, Laid::width);
        let is_bytes = laid
            .as_ref()
            .is_some_and(|laid| laid.columns.is_empty() && laid.width() == 1);
        // The product of two vectors has no axis.
        let columns = network[product].ty.shape.get(epilogue.axis);
        let read = Read {
            operands: &operands,
            columns: columns.and_then(Dim::as_const).unwrap_or(0),
            first: first.map(|first| (operands.len(), first)),
        };
        text += &structure(&read, &names, &others, laid, !numbers.is_empty());
        Self {
            operands,
            outputs: std::iter::once(output)
                .chain(epilogue.others().iter().copied())
                .collect(),
            text,
            numbers,
            width,
            is_bytes,
        }
    }
}

fn layers(epilogue: &Epilogue) -> Vec<LayerId> {
    epilogue.layers().collect()
}

fn typedef(name: &str, dtype: DType) -> String {
    format!("typedef {} {name};\n", element(dtype).unwrap_or("float"))
}

/// `Tail`; `arguments` are those of `element`: the number of an operand, or the sum. `numbered` says that there are `Numbers`.
fn structure(read: &Read, arguments: &[Option<usize>], others: &Others, laid: Option<Laid>, numbered: bool) -> String {
    let operands = read.operands;
    let mut text = String::from("struct Tail {\n");
    for number in 1..=operands.len() {
        _ = writeln!(text, "    const X{number}* x{number};");
    }
    text += &others.fields();
    if numbered {
        text += "    Numbers n;\n";
    }
    let first = if numbered { "n, " } else { "" };
    let call = |sum: &str, at: &dyn Fn(usize, Broadcast) -> String| {
        let sum = read.product(sum, at);
        let one = |argument: &Option<usize>| match *argument {
            Some(number) => format!("widen({})", at(number + 1, operands[number].broadcast)),
            None => sum.clone(),
        };
        let arguments: Vec<String> = arguments.iter().map(one).collect();
        let results = others.results().join(", ");
        format!(
            "{}element({results}, {first}{});",
            others.variables(),
            arguments.join(", ")
        )
    };
    let place = |number: usize, broadcast: Broadcast| format!("x{number}[{}]", read.index(broadcast));
    let single = call("sum", &place);
    _ = writeln!(
        text,
        "    __device__ __forceinline__ Y0 one(const Wide<T0>::type sum, const uint64 at, const int32 column) const {{\n        \
         Result y;\n        {single}\n{}        return Narrow<Y0>::from(y);\n    }}",
        others.stored(&read.product("sum", &place), |number| format!("z{number}[at]")),
    );
    let (packed, rows) = (
        read.numbers(&[Broadcast::Full, Broadcast::Column]),
        read.numbers(&[Broadcast::Row]),
    );
    let even = packed
        .iter()
        .map(|number| format!("(uint64)x{number} % sizeof(Pack<X{number}, 8>) == 0"));
    let even: Vec<String> = std::iter::once("true".into())
        .chain(even)
        .chain(others.even())
        .collect();
    _ = writeln!(
        text,
        "    // Whether operands may be read eight at a time, and what is stored besides stored so.\n    \
         __device__ __forceinline__ bool wide() const {{ return {}; }}",
        even.join(" && ")
    );
    let fetched = |number: usize, broadcast: Broadcast| match broadcast {
        Broadcast::Scalar => format!("x{number}[0]"),
        Broadcast::Row => format!("read.r{number}"),
        Broadcast::Full | Broadcast::Column => format!("read.p{number}.item[k]"),
    };
    let each = call("sums[k]", &fetched);
    let fields = packed.iter().map(|number| format!(" Pack<X{number}, 8> p{number};"));
    let fields = fields.chain(rows.iter().map(|number| format!(" X{number} r{number};")));
    let at = |number: &usize| read.index(operands[number - 1].broadcast);
    let packs = packed.iter().map(|number| {
        format!(
            " read.p{number} = *(const Pack<X{number}, 8>*)(x{number} + {});",
            at(number)
        )
    });
    let reads = packs.chain(
        rows.iter()
            .map(|number| format!(" read.r{number} = x{number}[{}];", at(number))),
    );
    _ = writeln!(
        text,
        "    // What eight neighbours read{}.\n    struct Read {{{} }};\n    \
         __device__ __forceinline__ Read read(const uint64 at, const int32 column) const {{\n        \
         Read read;\n       {}\n        return read;\n    }}\n    \
         __device__ __forceinline__ Pack<Y0, 8> pack(const float (&sums)[8], const Read& read) const {{\n        \
         Pack<Y0, 8> results;\n{}        #pragma unroll\n        for (int32 k = 0; k < 8; k++) {{\n            \
         Result y;\n            {each}\n            results.item[k] = Narrow<Y0>::from(y);\n{}        }}\n{}        \
         return results;\n    }}\n    \
         __device__ __forceinline__ Pack<Y0, 8> pack(const float (&sums)[8], const uint64 at, const int32 column) const {{\n        \
         return pack(sums, read(at, column));\n    }}",
        if others.is_empty() { "" } else { ", and where they are" },
        fields
            .chain((!others.is_empty()).then(|| " uint64 at;".into()))
            .collect::<String>(),
        reads
            .chain((!others.is_empty()).then(|| " read.at = at;".into()))
            .collect::<String>(),
        others.packs(),
        others.stored(&read.product("sums[k]", &fetched), |number| format!(
            "    others{number}.item[k]"
        )),
        others.stores(),
    );
    text + &neighbours(laid, &call) + "};\n"
}

/// What a `Tail` reads.
struct Read<'a> {
    operands: &'a [Operand],
    /// Columns of the result, where operands have a number for each row.
    columns: i64,
    /// The operand of what is done first.
    first: Option<(usize, First)>,
}

impl Read<'_> {
    /// Where the number of an operand is, for the result at `at`.
    fn index(&self, broadcast: Broadcast) -> String {
        match broadcast {
            Broadcast::Full => "at".into(),
            Broadcast::Column => "column".into(),
            Broadcast::Row => format!("at / {}", self.columns),
            Broadcast::Scalar => "0".into(),
        }
    }

    /// The product, from a sum and what reads the operand of a number.
    fn product(&self, sum: &str, read: &dyn Fn(usize, Broadcast) -> String) -> String {
        match self.first {
            None => sum.into(),
            Some((number, First::Scales(_))) => format!("f_product({sum}, {})", read(number, Broadcast::Row)),
            Some((number, First::Bias(_))) => format!("({sum} + widen({}))", read(number, Broadcast::Column)),
        }
    }

    /// The operands that broadcast in one of these ways.
    fn numbers(&self, ways: &[Broadcast]) -> Vec<usize> {
        let all = (1..).zip(self.operands);
        let found = all.filter(|(_, operand)| ways.contains(&operand.broadcast));
        found.map(|(number, _)| number).collect()
    }
}

/// What a `Tail` stores beside its result: `Z1`, `Z2`, ...
struct Others {
    /// The tensors.
    tensors: Vec<TensorId>,
    /// For each result of the code, in its order, which of them it is; the last one is the result.
    given: Vec<Option<usize>>,
}

impl Others {
    /// Those of an epilogue whose code gives these tensors.
    fn new(epilogue: &Epilogue, given: &[TensorId]) -> Self {
        let tensors = epilogue.others().to_vec();
        let number = |t: &TensorId| tensors.iter().position(|other| other == t).map(|at| at + 1);
        let given = if given.is_empty() {
            vec![None]
        } else {
            given.iter().map(number).collect()
        };
        Self { tensors, given }
    }

    fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    fn numbers(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.tensors.len()
    }

    fn each(&self, one: impl Fn(usize) -> String) -> String {
        self.numbers().map(one).collect()
    }

    fn typedefs(&self, dtype: impl Fn(TensorId) -> DType) -> String {
        self.each(|number| typedef(&format!("Z{number}"), dtype(self.tensors[number - 1])))
    }

    fn fields(&self) -> String {
        self.each(|number| format!("    Z{number}* z{number};\n"))
    }

    /// The first parameters of `element`.
    fn declared(&self) -> Vec<String> {
        let one = |(at, of): (usize, &Option<usize>)| match of {
            Some(number) => format!("Wide<Z{number}>::type& y{at}"),
            None => format!("Result& y{at}"),
        };
        self.given.iter().enumerate().map(one).collect()
    }

    /// Variables for them.
    fn variables(&self) -> String {
        let stored = self.given.iter().flatten();
        stored
            .map(|number| format!("Wide<Z{number}>::type w{number}; "))
            .collect()
    }

    fn results(&self) -> Vec<String> {
        let one = |of: &Option<usize>| of.map_or("y".into(), |number| format!("w{number}"));
        self.given.iter().map(one).collect()
    }

    /// Statements that put them where `to` says; what the code does not give is the product.
    fn stored(&self, sum: &str, to: impl Fn(usize) -> String) -> String {
        self.each(|number| {
            let value = match self.given.contains(&Some(number)) {
                true => format!("w{number}"),
                false => sum.into(),
            };
            format!("        {} = Narrow<Z{number}>::from({value});\n", to(number))
        })
    }

    fn packs(&self) -> String {
        self.each(|number| format!("        Pack<Z{number}, 8> others{number};\n"))
    }

    fn stores(&self) -> String {
        self.each(|number| format!("        *(Pack<Z{number}, 8>*)(z{number} + read.at) = others{number};\n"))
    }

    fn even(&self) -> impl Iterator<Item = String> {
        let one = |number| format!("(uint64)z{number} % sizeof(Pack<Z{number}, 8>) == 0");
        self.numbers().map(one)
    }
}

/// So many operands with a number for each column have room in `warpgroup.cu`.
pub const MOST_COLUMNS: usize = 3;

/// What `warpgroup.cu` lays out in shared memory for a `Tail`.
struct Laid {
    /// The operands with a number for each column, which have 16 bits.
    columns: Vec<usize>,
    /// The operand with a number for each result, and its bytes.
    element: Option<(usize, usize)>,
    /// The bytes of a result.
    result: usize,
}

impl Laid {
    /// For operands of these sizes; none where they have no room, or results would take the place of what is not read yet.
    fn new(operands: &[Operand], sizes: &[usize], result: usize) -> Option<Self> {
        let of = |wanted: Broadcast| {
            let numbered = (1..).zip(operands.iter().zip(sizes));
            let found = numbered.filter(move |(_, (operand, _))| operand.broadcast == wanted);
            found.map(|(number, (_, &size))| (number, size)).collect::<Vec<_>>()
        };
        let (columns, elements) = (of(Broadcast::Column), of(Broadcast::Full));
        let fits = (1..=2).contains(&result)
            && of(Broadcast::Row).is_empty()
            && columns.len() <= MOST_COLUMNS
            && columns.iter().all(|&(_, size)| size == 2)
            && elements.len() <= 1
            && elements.iter().all(|&(_, size)| (result..=2).contains(&size));
        fits.then(|| Self {
            columns: columns.into_iter().map(|(number, _)| number).collect(),
            element: elements.first().copied(),
            result,
        })
    }

    /// Bytes of the widest number.
    fn width(&self) -> usize {
        self.element.map_or(self.result, |(_, size)| size.max(self.result))
    }
}

/// What `warpgroup.cu` asks of a `Tail`: results two at a time, from operands that it laid out before.
fn neighbours(laid: Option<Laid>, call: Written) -> String {
    let Some(Laid {
        columns,
        element,
        result,
    }) = laid
    else {
        return "    static constexpr bool EVEN = false;\n    static constexpr int STAGED = 0, COLUMNS = 0, GRAIN = 1;\n    \
                __device__ __forceinline__ bool even() const { return false; }\n    \
                __device__ __forceinline__ const uint8* staged() const { return nullptr; }\n    \
                __device__ __forceinline__ const uint16* column(int32) const { return nullptr; }\n"
            .into();
    };
    let (staged, own) = match element {
        Some((number, size)) => (size, format!("(const uint8*)x{number}")),
        None => (0, "nullptr".into()),
    };
    let even = columns.iter().chain(element.iter().map(|(number, _)| number));
    let even = even.map(|number| format!("(uint64)x{number} % 16 == 0"));
    let even: Vec<String> = std::iter::once("true".into()).chain(even).collect();
    let chosen = columns.iter().enumerate().skip(1);
    let chosen: String = chosen
        .map(|(at, number)| format!("number == {at} ? (const uint16*)x{number} : "))
        .collect();
    let first = columns
        .first()
        .map_or("nullptr".into(), |number| format!("(const uint16*)x{number}"));
    let read = |number: usize, broadcast: Broadcast| match columns.iter().position(|&column| column == number) {
        Some(at) => format!("((const Pack<X{number}, 2>*)&read[{at}])->item[k]"),
        None if broadcast == Broadcast::Scalar => format!("x{number}[0]"),
        None => format!("((const Pack<X{number}, 2>*)&read[COLUMNS])->item[k]"),
    };
    format!(
        "    // Whether results and operands are laid out: these have so many bytes for each result, and so many numbers for each\n    \
         // column; as many numbers as GRAIN are moved at once.\n    \
         static constexpr bool EVEN = true;\n    \
         static constexpr int STAGED = {staged}, COLUMNS = {}, GRAIN = {};\n    \
         __device__ __forceinline__ bool even() const {{ return {}; }}\n    \
         __device__ __forceinline__ const uint8* staged() const {{ return {own}; }}\n    \
         __device__ __forceinline__ const uint16* column(int32 number) const {{ return {chosen}{first}; }}\n    \
         __device__ __forceinline__ Pack<Y0, 2> two(const float (&sums)[2], const uint32* read) const {{\n        \
         Pack<Y0, 2> results;\n        #pragma unroll\n        for (int32 k = 0; k < 2; k++) {{\n            \
         Result y;\n            {}\n            results.item[k] = Narrow<Y0>::from(y);\n        }}\n        \
         return results;\n    }}\n",
        columns.len(),
        16 / result,
        even.join(" && "),
        call("sums[k]", &read),
    )
}

/// Writes a call of `element` with a sum and what reads the operand of a number.
type Written<'a> = &'a dyn Fn(&str, &dyn Fn(usize, Broadcast) -> String) -> String;
