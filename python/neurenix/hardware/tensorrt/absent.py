"""Names of NVIDIA's package that are not there, and why."""

from __future__ import annotations

_MEMORY = "contexts and engines bring their memory themselves"
_QUICK = "plugins of functions are not read; derive from trt.IPluginV2 (docs/plugins.md), or from trt.IPluginV3"
_NO_LAYER = "there is no such layer; put it together of others"
_DEVICES = "a network runs on one device"

#: Names of the module.
ABSENT = {
    "AllocatorFlag": _MEMORY,
    "CollectiveOperation": _DEVICES,
    "IAlgorithmSelector": "kernels are chosen by their time; exclude= keeps layers from a provider",
    "IDistCollectiveLayer": _DEVICES,
    "IDynamicQuantizeLayer": _NO_LAYER,
    "IGpuAllocator": _MEMORY,
    "IGpuAsyncAllocator": _MEMORY,
    "IKVCacheUpdateLayer": _NO_LAYER,
    "IMoELayer": _NO_LAYER,
    "IPluginCreatorV3Quick": _QUICK,
    "IPluginResourceContext": "plugins get no allocators and no error recorder; contexts attach to their own clone",
    "IPluginV2Ext": "derive from trt.IPluginV2DynamicExt, or from trt.IPluginV3",
    "IPluginV3OneBuildV2": "an output never shares the memory of an input; derive from trt.IPluginV3OneBuild",
    "IPluginV3QuickAOTBuild": _QUICK,
    "IPluginV3QuickBuild": _QUICK,
    "IPluginV3QuickCore": _QUICK,
    "IPluginV3QuickRuntime": _QUICK,
    "KVCacheMode": _NO_LAYER,
    "MoEActType": _NO_LAYER,
    "QuickPluginCreationRequest": _QUICK,
    "TempfileControlFlag": "engines hold no code that would go into files; see runtime.temporary_directory",
    "TimingCacheKey": "a timing cache is kept, combined and read whole",
    "TimingCacheValue": "a timing cache is kept, combined and read whole",
    "plugin": _QUICK,
}

_STATES = "no tensor can be marked for a debug listener; mark it as an output"
_CACHE = "a timing cache is kept, combined and read whole: serialize, combine, reset"

#: Names of objects, by the class.
OF_OBJECTS = {
    "ITimingCache": dict.fromkeys(("query", "queryKeys", "update"), _CACHE),
    "ICudaEngine": {
        "binding_is_input": "call get_tensor_mode",
        "get_binding_bytes_per_component": "call get_tensor_bytes_per_component",
        "get_binding_components_per_element": "call get_tensor_components_per_element",
        "get_binding_dtype": "call get_tensor_dtype",
        "get_binding_format": "call get_tensor_format",
        "get_binding_format_desc": "call get_tensor_format_desc",
        "get_binding_index": "tensors are called by their names",
        "get_binding_name": "call get_tensor_name",
        "get_binding_shape": "call get_tensor_shape",
        "get_binding_vectorized_dim": "call get_tensor_vectorized_dim",
        "get_location": "call get_tensor_location",
        "get_profile_shape": "call get_tensor_profile_shape",
        "get_profile_shape_input": "call get_tensor_profile_values",
        "is_execution_binding": "call get_tensor_location",
        "is_shape_binding": "call is_shape_inference_io",
        "max_batch_size": "networks say their batch themselves: call get_tensor_profile_shape",
        "max_workspace_size": "ask device_memory_size_v2",
        "num_bindings": "ask num_io_tensors",
    },
    "IExecutionContext": {
        "execute_async": "call execute_async_v3",
        "execute_async_v2": "call execute_async_v3",
        "get_binding_shape": "call get_tensor_shape",
        "get_debug_state": _STATES,
        "get_input_consumed_event": "no event tells that inputs were read; wait for the stream",
        "get_shape": "call get_tensor_shape",
        "get_strides": "call get_tensor_strides",
        "set_all_tensors_debug_state": _STATES,
        "set_binding_shape": "call set_input_shape",
        "set_communicator": _DEVICES,
        "set_shape_input": "call set_tensor_address: elements are read when a call comes",
        "set_tensor_debug_state": _STATES,
        "unfused_tensors_debug_state": _STATES,
    },
    "INetworkDefinition": {
        "add_fully_connected": "call add_matrix_multiply and add_elementwise",
        "add_plugin_ext": "call add_plugin_v2",
        "add_rnn": "write the recurrence with add_loop",
        "add_rnn_v2": "write the recurrence with add_loop",
    },
    "IBuilderConfig": {
        "min_timing_iterations": "set avg_timing_iterations",
        "strict_type_constraints": "set trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS",
    },
    "Builder": {
        "average_find_iterations": "set avg_timing_iterations of the configuration",
        "debug_sync": "set trt.BuilderFlag.DEBUG of the configuration",
        "int8_calibrator": "set int8_calibrator of the configuration",
        "min_find_iterations": "set avg_timing_iterations of the configuration",
    },
    "Refitter": dict.fromkeys(
        ("get_dynamic_range", "set_dynamic_range", "get_tensors_with_dynamic_range"),
        "ranges of tensors are a part of the network; build the engine anew",
    ),
}
