#include "tensorrt/flavour/names.h"

#include <map>
#include <stdexcept>

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {
namespace {

using namespace nvinfer1;

template <typename Enum>
using Names = std::map<std::string, Enum>;

template <typename Enum>
const Names<Enum>& names();

template <>
const Names<DataType>& names() {
    static const Names<DataType> all{
        {"FLOAT", DataType::kFLOAT}, {"HALF", DataType::kHALF},   {"INT8", DataType::kINT8},
        {"INT32", DataType::kINT32}, {"BOOL", DataType::kBOOL},   {"UINT8", DataType::kUINT8},
        {"FP8", DataType::kFP8},
#if NEURENIX_SHAPE >= 10
        {"BF16", DataType::kBF16},   {"INT64", DataType::kINT64}, {"INT4", DataType::kINT4},
#endif
    };
    return all;
}

template <>
const Names<ActivationType>& names() {
    static const Names<ActivationType> all{
        {"RELU", ActivationType::kRELU},
        {"SIGMOID", ActivationType::kSIGMOID},
        {"TANH", ActivationType::kTANH},
        {"LEAKY_RELU", ActivationType::kLEAKY_RELU},
        {"ELU", ActivationType::kELU},
        {"SELU", ActivationType::kSELU},
        {"SOFTSIGN", ActivationType::kSOFTSIGN},
        {"SOFTPLUS", ActivationType::kSOFTPLUS},
        {"CLIP", ActivationType::kCLIP},
        {"HARD_SIGMOID", ActivationType::kHARD_SIGMOID},
        {"SCALED_TANH", ActivationType::kSCALED_TANH},
        {"THRESHOLDED_RELU", ActivationType::kTHRESHOLDED_RELU},
#if NEURENIX_SHAPE >= 10
        {"GELU_ERF", ActivationType::kGELU_ERF},
        {"GELU_TANH", ActivationType::kGELU_TANH},
#endif
    };
    return all;
}

template <>
const Names<UnaryOperation>& names() {
    static const Names<UnaryOperation> all{
        {"EXP", UnaryOperation::kEXP},     {"LOG", UnaryOperation::kLOG},     {"SQRT", UnaryOperation::kSQRT},
        {"RECIP", UnaryOperation::kRECIP}, {"ABS", UnaryOperation::kABS},     {"NEG", UnaryOperation::kNEG},
        {"SIN", UnaryOperation::kSIN},     {"COS", UnaryOperation::kCOS},     {"TAN", UnaryOperation::kTAN},
        {"SINH", UnaryOperation::kSINH},   {"COSH", UnaryOperation::kCOSH},   {"ASIN", UnaryOperation::kASIN},
        {"ACOS", UnaryOperation::kACOS},   {"ATAN", UnaryOperation::kATAN},   {"ASINH", UnaryOperation::kASINH},
        {"ACOSH", UnaryOperation::kACOSH}, {"ATANH", UnaryOperation::kATANH}, {"CEIL", UnaryOperation::kCEIL},
        {"FLOOR", UnaryOperation::kFLOOR}, {"ERF", UnaryOperation::kERF},     {"NOT", UnaryOperation::kNOT},
        {"SIGN", UnaryOperation::kSIGN},   {"ROUND", UnaryOperation::kROUND}, {"ISINF", UnaryOperation::kISINF},
#if NEURENIX_SHAPE >= 10
        {"ISNAN", UnaryOperation::kISNAN},
#endif
    };
    return all;
}

template <>
const Names<ElementWiseOperation>& names() {
    static const Names<ElementWiseOperation> all{
        {"SUM", ElementWiseOperation::kSUM},   {"PROD", ElementWiseOperation::kPROD},
        {"MAX", ElementWiseOperation::kMAX},   {"MIN", ElementWiseOperation::kMIN},
        {"SUB", ElementWiseOperation::kSUB},   {"DIV", ElementWiseOperation::kDIV},
        {"POW", ElementWiseOperation::kPOW},   {"FLOOR_DIV", ElementWiseOperation::kFLOOR_DIV},
        {"AND", ElementWiseOperation::kAND},   {"OR", ElementWiseOperation::kOR},
        {"XOR", ElementWiseOperation::kXOR},   {"EQUAL", ElementWiseOperation::kEQUAL},
        {"LESS", ElementWiseOperation::kLESS}, {"GREATER", ElementWiseOperation::kGREATER},
    };
    return all;
}

template <>
const Names<ReduceOperation>& names() {
    static const Names<ReduceOperation> all{
        {"SUM", ReduceOperation::kSUM}, {"PROD", ReduceOperation::kPROD}, {"MAX", ReduceOperation::kMAX},
        {"MIN", ReduceOperation::kMIN}, {"AVG", ReduceOperation::kAVG},
    };
    return all;
}

template <>
const Names<PoolingType>& names() {
    static const Names<PoolingType> all{{"MAX", PoolingType::kMAX}, {"AVERAGE", PoolingType::kAVERAGE}};
    return all;
}

template <>
const Names<MatrixOperation>& names() {
    static const Names<MatrixOperation> all{
        {"NONE", MatrixOperation::kNONE},
        {"TRANSPOSE", MatrixOperation::kTRANSPOSE},
        {"VECTOR", MatrixOperation::kVECTOR},
    };
    return all;
}

template <>
const Names<TopKOperation>& names() {
    static const Names<TopKOperation> all{{"MAX", TopKOperation::kMAX}, {"MIN", TopKOperation::kMIN}};
    return all;
}

template <>
const Names<GatherMode>& names() {
    static const Names<GatherMode> all{
        {"DEFAULT", GatherMode::kDEFAULT}, {"ELEMENT", GatherMode::kELEMENT}, {"ND", GatherMode::kND}};
    return all;
}

template <>
const Names<ScatterMode>& names() {
    static const Names<ScatterMode> all{{"ELEMENT", ScatterMode::kELEMENT}, {"ND", ScatterMode::kND}};
    return all;
}

template <>
const Names<InterpolationMode>& names() {
    static const Names<InterpolationMode> all{
        {"NEAREST", InterpolationMode::kNEAREST},
        {"LINEAR", InterpolationMode::kLINEAR},
        {"CUBIC", InterpolationMode::kCUBIC},
    };
    return all;
}

template <>
const Names<ResizeCoordinateTransformation>& names() {
    using Value = ResizeCoordinateTransformation;
    static const Names<Value> all{
        {"ALIGN_CORNERS", Value::kALIGN_CORNERS},
        {"ASYMMETRIC", Value::kASYMMETRIC},
        {"HALF_PIXEL", Value::kHALF_PIXEL},
    };
    return all;
}

template <>
const Names<ResizeRoundMode>& names() {
    using Value = ResizeRoundMode;
    static const Names<Value> all{{"HALF_UP", Value::kHALF_UP},
                                  {"HALF_DOWN", Value::kHALF_DOWN},
                                  {"FLOOR", Value::kFLOOR},
                                  {"CEIL", Value::kCEIL}};
    return all;
}

template <>
const Names<SampleMode>& names() {
    static const Names<SampleMode> all{
        {"STRICT_BOUNDS", SampleMode::kSTRICT_BOUNDS},
        {"WRAP", SampleMode::kWRAP},
        {"CLAMP", SampleMode::kCLAMP},
        {"FILL", SampleMode::kFILL},
        {"REFLECT", SampleMode::kREFLECT},
    };
    return all;
}

template <>
const Names<TripLimit>& names() {
    static const Names<TripLimit> all{{"COUNT", TripLimit::kCOUNT}, {"WHILE", TripLimit::kWHILE}};
    return all;
}

template <>
const Names<LoopOutput>& names() {
    static const Names<LoopOutput> all{{"LAST_VALUE", LoopOutput::kLAST_VALUE},
                                       {"CONCATENATE", LoopOutput::kCONCATENATE},
                                       {"REVERSE", LoopOutput::kREVERSE}};
    return all;
}

template <>
const Names<BoundingBoxFormat>& names() {
    static const Names<BoundingBoxFormat> all{{"CORNER_PAIRS", BoundingBoxFormat::kCORNER_PAIRS},
                                              {"CENTER_SIZES", BoundingBoxFormat::kCENTER_SIZES}};
    return all;
}

template <>
const Names<BuilderFlag>& names() {
    static const Names<BuilderFlag> all{
        {"TF32", BuilderFlag::kTF32},
        {"REFIT", BuilderFlag::kREFIT},
        {"DISABLE_TIMING_CACHE", BuilderFlag::kDISABLE_TIMING_CACHE},
        {"VERSION_COMPATIBLE", BuilderFlag::kVERSION_COMPATIBLE},
        {"EXCLUDE_LEAN_RUNTIME", BuilderFlag::kEXCLUDE_LEAN_RUNTIME},
#if NEURENIX_SHAPE >= 10
        {"STRIP_PLAN", BuilderFlag::kSTRIP_PLAN},
        {"REFIT_IDENTICAL", BuilderFlag::kREFIT_IDENTICAL},
        {"WEIGHT_STREAMING", BuilderFlag::kWEIGHT_STREAMING},
#else
        {"FP16", BuilderFlag::kFP16},
        {"INT8", BuilderFlag::kINT8},
        {"OBEY_PRECISION_CONSTRAINTS", BuilderFlag::kOBEY_PRECISION_CONSTRAINTS},
#endif
#if NEURENIX_AT_LEAST(100900, 10300)
        {"REFIT_INDIVIDUAL", BuilderFlag::kREFIT_INDIVIDUAL},
        {"STRICT_NANS", BuilderFlag::kSTRICT_NANS},
        {"EDITABLE_TIMING_CACHE", BuilderFlag::kEDITABLE_TIMING_CACHE},
#endif
    };
    return all;
}

template <>
const Names<HardwareCompatibilityLevel>& names() {
    static const Names<HardwareCompatibilityLevel> all{
        {"NONE", HardwareCompatibilityLevel::kNONE},
        {"AMPERE_PLUS", HardwareCompatibilityLevel::kAMPERE_PLUS},
#if NEURENIX_AT_LEAST(101200, 10300)
        {"SAME_COMPUTE_CAPABILITY", HardwareCompatibilityLevel::kSAME_COMPUTE_CAPABILITY},
#endif
    };
    return all;
}

}  // namespace

template <typename Enum>
Enum named(const std::string& name) {
    const auto found = names<Enum>().find(name);
    if (found == names<Enum>().end()) throw std::invalid_argument("this version of TensorRT has no " + name);
    return found->second;
}

template <typename Enum>
bool has(const std::string& name) {
    return names<Enum>().count(name) != 0;
}

std::string name_of(DataType dtype) {
    for (const auto& [name, value] : names<DataType>()) {
        if (value == dtype) return name;
    }
    return "a dtype that Neurenix does not know";
}

template DataType named(const std::string&);
template ActivationType named(const std::string&);
template UnaryOperation named(const std::string&);
template ElementWiseOperation named(const std::string&);
template ReduceOperation named(const std::string&);
template PoolingType named(const std::string&);
template MatrixOperation named(const std::string&);
template TopKOperation named(const std::string&);
template GatherMode named(const std::string&);
template ScatterMode named(const std::string&);
template InterpolationMode named(const std::string&);
template ResizeCoordinateTransformation named(const std::string&);
template ResizeRoundMode named(const std::string&);
template SampleMode named(const std::string&);
template TripLimit named(const std::string&);
template LoopOutput named(const std::string&);
template BoundingBoxFormat named(const std::string&);
template BuilderFlag named(const std::string&);
template HardwareCompatibilityLevel named(const std::string&);
template bool has<BuilderFlag>(const std::string&);

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
